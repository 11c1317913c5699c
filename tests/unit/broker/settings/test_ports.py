"""Ports are taken before anything else, and addresses are what clients can reach."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gantry.broker.settings.ports import Addresses, Reservation, reserve
from gantry.broker.settings.sections import NetworkConfig
from gantry.errors import ConfigError


@contextmanager
def reserved(**fields: object) -> Iterator[Addresses]:
    reservations: list[Reservation] = []
    try:
        yield asyncio.run(reserve(NetworkConfig(**fields), reservations))  # type: ignore[arg-type]
    finally:
        for reservation in reservations:
            reservation.release()


def test_port_0_becomes_a_number_and_so_does_the_vip_port() -> None:
    with reserved(bind="127.0.0.1", port=0) as addresses:
        assert addresses.port > 0 and addresses.vip_port not in (None, 0, addresses.port)
        assert addresses.advertised == f"127.0.0.1:{addresses.port}"
        assert addresses.packed == bytes([127, 0, 0, 1]) + addresses.port.to_bytes(4, "big")
        assert addresses.ha == f"127.0.0.1:{addresses.port + 1}"


def test_a_server_can_listen_beside_the_reservation_and_nobody_else_after_it() -> None:
    first = Reservation("127.0.0.1", 0)
    listener = socket.create_server(("127.0.0.1", first.port))
    first.release()
    with pytest.raises(
        ConfigError, match=rf"cannot listen on 127\.0\.0\.1:{first.port}: Address already in use"
    ) as caught:
        Reservation("127.0.0.1", first.port)
    assert isinstance(caught.value.__cause__, OSError)
    listener.close()


def test_what_clients_are_told_is_what_was_configured() -> None:
    with reserved(bind="127.0.0.1", port=0, vip_port=-2, advertise="10.1.2.3") as addresses:
        assert addresses.advertised == f"10.1.2.3:{addresses.port}" and addresses.vip_port is None
    with reserved(bind="127.0.0.1", port=0, advertise="localhost") as addresses:
        assert addresses.advertised in (f"127.0.0.1:{addresses.port}", f"[::1]:{addresses.port}")


def test_everywhere_is_no_address_for_a_client() -> None:
    with reserved(bind="0.0.0.0", port=0) as addresses:
        assert addresses.packed[:4] != bytes(4)


def test_an_address_that_is_none_is_named() -> None:
    with (
        pytest.raises(ConfigError, match=r"network\.advertise 'no such host"),
        reserved(bind="127.0.0.1", port=0, advertise="no such host.invalid"),
    ):
        pass
