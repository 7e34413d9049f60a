"""Where http targets may connect to: public addresses, and what the operator opened.

The address is checked where the socket is made, after name resolution, so neither a
name that changes its answer nor an odd spelling of an address gets around it. What
`ipaddress` calls global is not enough: multicast, some reserved ranges and IPv6 forms
that carry an IPv4 address inside count as global too.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from chrono.rules.errors import BadValue

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Global by the book, yet not the public internet.
_CLOSED = tuple(
    ipaddress.ip_network(net)
    for net in (
        "168.63.129.16/32",  # a cloud's host, reachable from its guests
        "192.0.0.0/24",  # protocol assignments
        "192.88.99.0/24",  # 6to4 relays
        "::ffff:0:0:0/96",  # IPv4-translated
        "64:ff9b:1::/48",  # NAT64 of private networks
        "2001::/23",  # Teredo and other protocol assignments
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
        "5f00::/16",  # segment routing
        "fec0::/10",  # site-local
    )
)
# IPv6 forms that carry an IPv4 address in their last 32 bits.
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A network that the operator opened, on one port or on all."""

    network: Network
    port: int | None

    def covers(self, address: Address, port: int) -> bool:
        """Return whether this opening lets through to the address and port."""
        return (
            address.version == self.network.version
            and address in self.network
            and self.port in (None, port)
        )


def parse_openings(entries: Iterable[str]) -> tuple[Opening, ...]:
    """Return the openings written as ``10.1.0.0/16``, ``10.1.0.0/16:8080``,
    ``fd00::/8`` or ``[fd00::/8]:8080``. Raises BadValue naming the entry at fault.
    """
    return tuple(_opening(entry.strip()) for entry in entries if entry.strip())


def _opening(entry: str) -> Opening:
    net, port = entry, ""
    if entry.startswith("["):
        net, closed, rest = entry[1:].partition("]")
        port = rest.removeprefix(":") if closed else "missing ]"
    elif entry.count(":") == 1:
        net, _, port = entry.partition(":")
    try:
        number = int(port) if port else None
        if number is not None and not 0 < number < 65_536:
            raise ValueError(port)
        return Opening(network=ipaddress.ip_network(net), port=number)
    except ValueError:
        raise BadValue(
            f"CHRONO_EGRESS_ALLOW: {entry} is no network as 10.1.0.0/16 or "
            "10.1.0.0/16:8080.",
            field="CHRONO_EGRESS_ALLOW",
        ) from None


def may_connect(
    host: str, port: int, *, openings: tuple[Opening, ...], plain: bool
) -> bool:
    """Return whether a socket to this resolved address may be made.

    ``plain`` is a connection without TLS, which only an opening permits.
    """
    address = parse_address(host)
    if address is None:
        return False
    if any(opening.covers(address, port) for opening in openings):
        return True
    return not plain and is_public(address)


def parse_address(host: str) -> Address | None:
    """Return a resolved address, a mapped IPv4 one as what it maps; None for others."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return None
        return address.ipv4_mapped or address
    return address


def is_public(address: Address) -> bool:
    """Return whether the address, and every IPv4 address inside it, is public."""
    return (
        address.is_global
        and not address.is_multicast
        and not any(
            address.version == net.version and address in net for net in _CLOSED
        )
        and all(is_public(inner) for inner in _embedded(address))
    )


def _embedded(address: Address) -> list[ipaddress.IPv4Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return []
    last_32 = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    carried = (_MAPPED, _COMPATIBLE, _NAT64)
    return [last_32] if any(address in net for net in carried) else []
