"""Addresses in text and packed."""

from __future__ import annotations

import pytest

from gantry.errors import ConfigError
from gantry.transport.addresses import host_text, pack_host, split_address, split_addresses


@pytest.mark.parametrize(
    ("host", "packed"),
    [
        ("10.1.2.3", "0a010203"),
        ("::1", "00" * 15 + "01"),
        ("::ffff:10.1.2.3", "0a010203"),
        ("fe80::1%eth0", "fe80" + "00" * 13 + "01"),
    ],
)
def test_hosts_are_packed_as_records_carry_them(host: str, packed: str) -> None:
    assert pack_host(host, 10911) == bytes.fromhex(packed + "00002a9f")


def test_what_is_no_address_packs_as_zeros() -> None:
    assert pack_host("/run/socket", 1) == bytes(8)


def test_packed_hosts_are_shown_as_clients_write_them() -> None:
    assert host_text(pack_host("10.1.2.3", 80)) == "10.1.2.3:80"
    assert host_text(pack_host("2001:db8::1", 80)) == "[2001:db8::1]:80"


@pytest.mark.parametrize("text", ["10.0.0.1:9876", "http://10.0.0.1:9876/", " 10.0.0.1:9876 "])
def test_an_address_is_read_in_the_forms_that_configurations_use(text: str) -> None:
    assert split_address(text) == ("10.0.0.1", 9876)


def test_a_v6_address_stands_in_brackets() -> None:
    assert split_address("[::1]:9876") == ("::1", 9876)


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:x", "host:70000"])
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match="expected host:port"):
        split_address(text)


def test_lists_are_parted_by_semicolon_or_comma() -> None:
    assert split_addresses("a:1; b:2,c:3;") == ["a:1", "b:2", "c:3"]
