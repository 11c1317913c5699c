"""Which clients a proxy knows, and that it ends when it could not tell brokers of them any more."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from gantry.clock import SystemClock
from gantry.gateway import brokers as brokers_module
from gantry.gateway.brokers import Brokers
from gantry.proxy import presence
from gantry.proxy.caller import Caller
from gantry.proxy.clients import ALIVE_S, KnownClients
from gantry.proxy.presence import OwnerReports
from gantry.proxy.server import Proxy, ProxySettings
from testkit.patience import HANG_S


def test_a_client_that_lives_by_its_stream_alone_keeps_no_silent_ones() -> None:
    clients = KnownClients(clients_max=6)
    streaming = clients.seen(Caller("streaming"), 0.0)
    for number in range(2):
        clients.seen(Caller(f"silent{number}"), 1.0)
    clients.called(streaming, ALIVE_S)
    clients.seen(Caller("new"), ALIVE_S + 2)
    assert [one.caller.client_id for one in clients.alive(ALIVE_S + 2)] == ["streaming", "new"]
    assert len(clients) == 2


def test_a_client_that_said_goodbye_does_not_come_back_by_its_stream() -> None:
    clients = KnownClients()
    gone = clients.seen(Caller("gone"), 0.0)
    clients.ended("gone")
    clients.called(gone, 1.0)
    assert len(clients) == 0


@pytest.mark.parametrize("what", ["owners", "presence"])
async def test_a_proxy_that_cannot_tell_brokers_who_lives_ends(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "_EVERY_S", 0.0)
    monkeypatch.setattr(brokers_module, "_MEET_S", 0.0)
    ended = asyncio.Event()
    proxy = Proxy(ProxySettings(["127.0.0.1:1"], [b"k" * 32], "127.0.0.1", 0), ended.set)

    async def broken() -> None:
        raise ValueError("a bug")

    part: Any = OwnerReports(cast(Any, None), proxy.clients, cast(Any, None))
    if what == "presence":
        part = Brokers(["127.0.0.1:1"], SystemClock(), lambda connection, command: False, lambda: ())
        part.announce = broken
    else:
        part.report = broken
    part.start(proxy._fail)
    async with asyncio.timeout(HANG_S):
        await ended.wait()
    await part.close()
    await proxy.brokers.close()
    assert "a bug" in str(proxy.failure) and not proxy._is_alive()[0]
