"""What a target is called where calls to it are counted."""

import pytest

from chrono.rules.errors import BadValue
from chrono.rules.gates import Gate, parse_gate
from chrono.rules.states import Reason
from chrono.rules.targets import identity, parse_identity


def http(url):
    return {"kind": "http", "url": url}


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://Example.org/a?b=c", "https://example.org:443"),
        ("https://example.org:443/other", "https://example.org:443"),
        ("http://example.org", "http://example.org:80"),
        ("http://127.0.0.1:8799/x", "http://127.0.0.1:8799"),
        ("https://[2001:DB8::1]:8443/", "https://[2001:db8::1]:8443"),
    ],
)
def test_an_address_stands_for_its_server(url, name):
    assert identity(http(url)) == name
    assert parse_identity(url) == name
    assert parse_identity(name) == name


def test_a_task_is_its_name():
    assert identity({"kind": "task", "name": "reports.send"}) == "reports.send"
    assert parse_identity("reports.send") == "reports.send"


@pytest.mark.parametrize(
    "target",
    [
        {},
        {"kind": "http"},
        http(7),
        http("ftp://example.org"),
        http("https://"),
        http("https://example.org:99999/"),
        http("https://[::1"),
        http(f"https://{'x' * 300}.org"),
        {"kind": "task"},
        {"kind": "task", "name": "x" * 301},
        {"kind": "fax", "name": "x"},
    ],
)
def test_what_cannot_be_called_is_not_counted(target):
    assert identity(target) == ""


@pytest.mark.parametrize(
    "text", [None, 7, "", "a\x00b", "ftp://x", "https://", "x" * 301, "x" * 3_000]
)
def test_what_is_no_target_is_refused(text):
    with pytest.raises(BadValue) as refused:
        parse_identity(text)
    assert refused.value.field == "target"


def test_a_gate_is_read_back_from_its_key():
    gate = Gate(Reason.CIRCUIT_OPEN, 7, "https://example.org:443")
    assert gate.key == "circuit_open/7/https://example.org:443"
    assert parse_gate(gate.key) == gate


@pytest.mark.parametrize(
    "key", ["overlap", "catch_up", "circuit_open", "x/1/y", "circuit_open/x/y"]
)
def test_other_gates_are_none_of_these(key):
    assert parse_gate(key) is None
