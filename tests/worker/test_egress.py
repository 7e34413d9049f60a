"""Which resolved addresses a socket may be made to."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.worker.egress import is_public, may_connect, parse_address, parse_openings
from chrono.rules.errors import BadValue

CLOSED = [
    "0.0.0.0",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.9",
    "192.0.0.170",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::2",
    "::127.0.0.1",
    "::10.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.1.2.3",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b::10.0.0.1",
    "64:ff9b:1::8.8.8.8",
    "100::1",
    "2001::1",
    "2001:0:a9fe:a9fe::1",
    "2001:2::1",
    "2001:10::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:808:808::1",
    "2002:a00:1::1",
    "2002:a9fe:a9fe::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd12:3456::1",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "ff05::1:3",
    "2606:4700::1111%eth0",
    # Not addresses: what was not resolved is not connected to.
    "localhost",
    "127.1",
    "0x7f000001",
    "2130706433",
    "017700000001",
    "0177.0.0.1",
    "①②⑦.⓪.⓪.①",
    "",
]
OPEN = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.216.34",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
    "2606:4700::1111",
    "2a00:1450:4001:81a::200e",
]


@pytest.mark.parametrize("host", CLOSED)
def test_closed(host):
    assert not may_connect(host, 443, openings=(), plain=False)


@pytest.mark.parametrize("host", OPEN)
def test_open_with_tls_alone(host):
    assert may_connect(host, 443, openings=(), plain=False)
    assert not may_connect(host, 80, openings=(), plain=True)


@given(st.integers(0, 2**32 - 1))
def test_no_disguise_opens_a_closed_ipv4_address(number):
    inner = ipaddress.IPv4Address(number)
    disguises = [
        ipaddress.IPv6Address(0xFFFF << 32 | number),
        ipaddress.IPv6Address(number),
        ipaddress.IPv6Address(0x64FF9B << 96 | number),
        ipaddress.IPv6Address(0x2002 << 112 | number << 80 | 1),
    ]
    if not is_public(inner):
        for disguise in disguises:
            assert not may_connect(str(disguise), 443, openings=(), plain=False)


def test_an_opening_lets_plain_http_through_to_its_network_and_port():
    openings = parse_openings(["127.0.0.0/8", "10.1.0.0/16:8080", "[fd00::/8]:9000"])

    def opened(host, port):
        return may_connect(host, port, openings=openings, plain=True)

    assert opened("127.0.0.1", 1)
    assert opened("::ffff:127.0.0.1", 1)
    assert opened("10.1.2.3", 8080)
    assert not opened("10.1.2.3", 8081)
    assert not opened("10.2.0.1", 8080)
    assert opened("fd00::1", 9000)
    assert not opened("fd00::1", 9001)
    assert not opened("::1", 1)
    assert not opened("8.8.8.8", 80)


@pytest.mark.parametrize(
    "entry",
    ["localhost", "10.0.0.1/8", "10.0.0.0/8:0", "10.0.0.0/8:x", "10.0.0.0/33", "[::1"],
)
def test_an_opening_that_is_no_network_is_refused(entry):
    with pytest.raises(BadValue, match="CHRONO_EGRESS_ALLOW") as refused:
        parse_openings([entry])
    assert refused.value.field == "CHRONO_EGRESS_ALLOW"


def test_openings_may_be_empty_and_lack_a_mask():
    [opening] = parse_openings(["", " 10.0.0.7 "])
    assert opening.covers(ipaddress.ip_address("10.0.0.7"), 1)
    assert parse_address("10.0.0.7") == ipaddress.ip_address("10.0.0.7")
