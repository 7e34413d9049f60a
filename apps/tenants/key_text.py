"""The text of an API key: ``chr_live_<8 id>_<32 secret><6 checksum>``.

All three are of base 62, in which no character needs quoting anywhere. The prefix
lets scanners find a key that leaked; the checksum (CRC-32 of all that stands before
it) lets a mistyped or cut key be told from a wrong one without a look at the database.
It is no protection: that is the secret's 190 random bits.
"""

import hashlib
import re
import zlib

from apps.tenants.errors import KeyMalformed

PREFIX = "chr_live_"
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
ID_LENGTH = 8
SECRET_LENGTH = 32
CHECKSUM_LENGTH = 6  # 62 ** 6 > 2 ** 32

_FORM = re.compile(
    rf"({PREFIX}([0-9A-Za-z]{{{ID_LENGTH}}})_[0-9A-Za-z]{{{SECRET_LENGTH}}})"
    rf"([0-9A-Za-z]{{{CHECKSUM_LENGTH}}})"
)


def compose(*, ident: str, secret: str) -> str:
    """Return the whole text for an id and a secret of the right lengths."""
    body = f"{PREFIX}{ident}_{secret}"
    return body + _checksum(body)


def ident_of(text: str) -> str:
    """Return the id in a key's text.

    Raises KeyMalformed for any other text; the message does not repeat it. Every
    change of one character is noticed, and of two that stand side by side.
    """
    found = _FORM.fullmatch(text)
    if found is None or _checksum(found[1]) != found[3]:
        raise KeyMalformed
    return found[2]


def digest_of(text: str) -> bytes:
    """Return what is stored instead of the text: SHA-256 of all of it.

    A fast hash is enough where what it hides is random: there is no list to try.
    """
    return hashlib.sha256(text.encode("ascii")).digest()


def _checksum(body: str) -> str:
    rest = zlib.crc32(body.encode("ascii"))
    digits = []
    for _ in range(CHECKSUM_LENGTH):
        rest, digit = divmod(rest, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))
