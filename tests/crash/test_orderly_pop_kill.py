"""kill -9 of the real process while messages are handled in order: the next life goes on where the handler was.

The handler writes its book outside: what it was given, what it acknowledged with an answer, and which batch is its own.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gantry.leaves.frames import Command
from gantry.wire.codes import RequestCode
from testkit.patience import HANG_S
from testkit.popplay import BROKER, TOPIC, Popped, ack_request, change_request, pop_request, popped
from testkit.process import GantryProcess
from testkit.rawclient import RawClient

_CONFIG = {"name": BROKER, "topics.template_queues": "1", "store.index_slots": "1000", "store.index_entries": "4000"}
_LONG_MS = 3_600_000


class Handler:
    """One handler of the group, over all lives of the broker."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.batch: list[Popped] = []
        self.done: list[bytes] = []  # acknowledged, in the order of the answers
        self.sent = 0

    def live(self, client: RawClient, rounds: int) -> None:
        """Go on where the last life stopped, and check that the queue is still ours."""
        if self.batch:
            assert self._pop(client) == [], "somebody else got the locked queue"
        for _ in range(rounds):
            self._send(client, self.rng.randint(1, 3))
            if not self.batch:
                self.batch = self._pop(client)
            self._handle(client)

    def _send(self, client: RawClient, count: int) -> None:
        for _ in range(count):
            opaque = client.send(TOPIC, 0, b"m%06d" % self.sent)
            reply = client.reply()
            assert reply is not None and (reply.opaque, reply.code) == (opaque, 0)
            self.sent += 1

    def _pop(self, client: RawClient) -> list[Popped]:
        reply = self._call(client, pop_request(self.rng.randint(1, 8), _LONG_MS, order="true"))
        found = popped(reply) if reply.code == 0 else []
        again = {one.body for one in found}.intersection(self.done)
        assert not again, f"acknowledged, and here again: {again}"
        return found

    def _handle(self, client: RawClient) -> None:
        """Acknowledge some of the batch in order, or let all of it come again."""
        if self.rng.random() < 0.2:
            for one in self.batch:
                assert self._call(client, change_request(one, 0)).ext["gantryVerdict"] == "open"
            self.batch = []
        for one in self.batch[: self.rng.randint(1, 8)]:
            assert self._call(client, ack_request(one)).ext["gantryVerdict"] == "open"
            self.done.append(one.body)
            self.batch = [other for other in self.batch if other is not one]

    def finish(self, client: RawClient) -> None:
        """Handle everything that is left."""
        self.batch += self._pop(client)
        while self.batch:
            for one in self.batch:
                assert self._call(client, ack_request(one)).ext["gantryVerdict"] == "open"
                self.done.append(one.body)
            self.batch = self._pop(client)

    @staticmethod
    def _call(client: RawClient, command: Command) -> Command:
        reply = client.call(command.code, dict(command.ext), command.body, HANG_S)
        assert reply.code in (0, 210), f"{RequestCode(command.code).name}: {reply.code} {reply.remark}"
        return reply


def _lives(folder: Path, seed: int, lives: int) -> None:
    rng = random.Random(seed)
    handler = Handler(rng)
    for _ in range(lives):
        with GantryProcess(folder / "data", _CONFIG) as process, RawClient(process.broker) as client:
            handler.live(client, rng.randint(5, 40))
            process.stop() if rng.random() < 0.3 else process.kill()
    with GantryProcess(folder / "data", _CONFIG) as process, RawClient(process.broker) as client:
        handler.finish(client)
        process.stop()
    assert handler.done == [b"m%06d" % number for number in range(handler.sent)]


def test_a_handler_goes_on_over_four_lives_in_order(tmp_path: Path) -> None:
    _lives(tmp_path, 5, 4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_handler_goes_on_over_twenty_lives_in_order(tmp_path: Path, seed: int) -> None:
    _lives(tmp_path, seed, 20)
