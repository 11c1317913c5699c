"""Folders with popped messages, exchanged with Apache's broker: each goes on with the leases of the other one.

What was acknowledged does not come again, what was not comes again when its lease has ended, and what was never popped
comes.  Each broker gets a folder in which the other one left all three, in an orderly stop and after a kill.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gantry.wire.codes import ResponseCode
from interop import servers
from interop.conftest import require
from testkit.patience import HANG_S
from testkit.popplay import TOPIC, Popped, ack_request, pop_request, popped
from testkit.rawclient import SEND, RawClient, send_fields

SETTINGS: servers.Settings = {"brokerName": "broker-a", "timerWheelEnable": "true", "messageDelayLevel": "1s 5s"}
LEASE_MS = 12_000
QUIET_S = LEASE_MS / 1000 + 8.0
_AGAIN_S = 0.2


class Folder:
    """One folder that goes from broker to broker on one address."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._address: tuple[str, str] | None = None
        self._server: servers.Server | None = None
        self._client: RawClient | None = None
        self._sent = 0

    def open(self, kind: str) -> None:
        """Let a broker have the folder."""
        self._server = servers.make(kind, self._home / kind, self._home / "data", SETTINGS)
        if self._address is None:
            self._server.start()
            servers.create_topic(self._server, TOPIC, queues=2)
        else:
            self._server.name_server, self._server.broker = self._address
            self._server.start()
        self._address = self._server.name_server, self._server.broker
        host, port = self._server.broker.split(":")
        self._client = RawClient((host, int(port)))

    def close(self, how: str = "stop") -> None:
        """`stop` or `kill` the broker."""
        if self._client is not None:
            self._client.close()
        if self._server is not None:
            getattr(self._server, how)()
            self._server.close()
        self._server = self._client = None

    @property
    def client(self) -> RawClient:
        assert self._client is not None
        return self._client

    def send(self, count: int) -> set[bytes]:
        """Send messages into both queues; return their bodies."""
        bodies = {b"m%d" % number for number in range(self._sent, self._sent + count)}
        self._sent += count
        for number, body in enumerate(sorted(bodies)):
            reply = self.client.ask(SEND, send_fields(TOPIC, number % 2), body)
            assert reply.code == 0, (reply.code, reply.remark)
        return bodies

    def pop(self, count: int, lease_ms: int) -> list[Popped]:
        """Pop once."""
        request = pop_request(count, lease_ms)
        reply = self.client.ask(request.code, request.ext)
        if reply.code in (ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND):
            return []
        assert reply.code == 0, (reply.code, reply.remark)
        return popped(reply)

    def ack(self, message: Popped) -> None:
        """Acknowledge a message."""
        request = ack_request(message)
        reply = self.client.ask(request.code, request.ext)
        assert reply.code == 0, (reply.code, reply.remark)

    def pop_some(self, count: int, lease_ms: int) -> list[bytes]:
        """Pop so many messages, acknowledge every second one, and return the others' bodies."""
        kept: list[bytes] = []
        number, until = 0, time.monotonic() + HANG_S
        while number < count:
            assert time.monotonic() < until, f"{number} of {count} messages were popped"
            for message in self.pop(2, lease_ms):
                if number % 2:
                    self.ack(message)
                else:
                    kept.append(message.body)
                number += 1
        return kept

    def pop_all(self, wanted: set[bytes]) -> dict[bytes, int]:
        """Pop and acknowledge until all wanted bodies came, and then for the time of a lease; how often each came."""
        found: dict[bytes, int] = {}
        until, quiet_until, pause = time.monotonic() + HANG_S, 0.0, threading.Event()
        while not quiet_until or time.monotonic() < quiet_until:
            for message in self.pop(32, 60_000):
                found[message.body] = found.get(message.body, 0) + 1
                self.ack(message)
            if wanted <= set(found) and not quiet_until:
                quiet_until = time.monotonic() + QUIET_S
            assert quiet_until or time.monotonic() < until, f"{sorted(wanted - set(found))} did not come"
            pause.wait(_AGAIN_S)
        return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    require("java")
    made = Folder(tmp_path)
    yield made
    made.close("kill")


@pytest.mark.slow
@pytest.mark.only_on_gantry
@pytest.mark.timeout(900)
@pytest.mark.parametrize("is_java_first", [True, False], ids=["taken over", "given back"])
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_one_that_opens_the_folder_goes_on_with_the_other_s_leases(
    folder: Folder, is_java_first: bool, how: str
) -> None:
    first, second = ("apache-5.x", "gantry") if is_java_first else ("gantry", "apache-5.x")
    folder.open(first)
    sent = folder.send(30)
    kept = set(folder.pop_some(20, LEASE_MS))
    threading.Event().wait(2.0)  # RocketMQ saves what was popped on a timer, which a kill would forget
    folder.close(how)
    folder.open(second)
    more = folder.send(4)
    acknowledged = 20 - len(kept)
    found = folder.pop_all(kept | more)
    assert len(found) == len(sent) + len(more) - acknowledged
    assert set(found.values()) == {1}
