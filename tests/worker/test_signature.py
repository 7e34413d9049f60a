"""Signatures, against an implementation that is not ours."""

import base64
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from apps.worker.signature import BadSecret, key_of, sign

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_the_published_example_comes_out():
    signature = sign(
        key_of(SECRET),
        message_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        timestamp=1614265330,
        body=b'{"test": 2432232314}',
    )
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def headers(body, *, message_id="0193-run", at=None):
    timestamp = int((at or datetime.now(UTC)).timestamp())
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(
            key_of(SECRET), message_id=message_id, timestamp=timestamp, body=body
        ),
    }


def test_an_independent_receiver_accepts_it():
    body = '{"text":"ü","n":1}'.encode()
    assert Webhook(SECRET).verify(body, headers(body)) == {"text": "ü", "n": 1}


@pytest.mark.parametrize(
    ("body", "given"),
    [
        (b'{"n":2}', headers(b'{"n":1}')),
        (b'{"n":1}', headers(b'{"n":1}') | {"webhook-id": "another"}),
        (b'{"n":1}', headers(b'{"n":1}', at=datetime(2020, 1, 1, tzinfo=UTC))),
    ],
)
def test_it_refuses_another_body_another_id_and_a_replay(body, given):
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(body, given)


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        "whsec_not base64!",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_" + base64.b64encode(b"x" * 23).decode(),
        "whsec_" + base64.b64encode(b"x" * 65).decode(),
    ],
)
def test_a_secret_of_another_form_is_refused(secret):
    with pytest.raises(BadSecret):
        key_of(secret)
