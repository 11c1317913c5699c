"""kill -9 and orderly restarts of the real process in the middle of pops: none is lost, none comes after its ack.

Two consumers pop and acknowledge in batches and singly, change times, and leave some messages to their end.  The table
has what each answer said; what was not answered when the process died may be either way.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from gantry.leaves.frames import Command
from testkit.patience import HANG_S
from testkit.popplay import ack_request, batch_ack_request, change_request, pop_request, popped
from testkit.process import GantryProcess
from testkit.rawclient import RawClient, send_fields

_CONFIG = {"name": "broker-a", "store.index_slots": "10000", "store.index_entries": "80000"}


class Table:
    """What is known of each message by its body."""

    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        self.done: set[bytes] = set()
        self.doubtful: set[bytes] = set()

    def send(self, client: RawClient, prefix: str, count: int) -> None:
        for number in range(count):
            body = f"{prefix}-{number}".encode()
            client.request(310, send_fields("orders", number % 4), body)
            self.sent.add(body)
        for _ in range(count):
            reply = client.reply()
            assert reply is not None and reply.code == 0

    def consume(self, client: RawClient, rng: random.Random) -> bool:
        """One pop, and what a consumer does with its messages; False when there was none."""
        reply = ask(client, pop_request(rng.randint(1, 32), rng.choice([300, 800])))
        if reply.code != 0:
            return False
        found = popped(reply)
        for one in found:
            assert one.body not in self.done, f"{one.body!r} was acknowledged and came again"
        kept = [one for one in found if rng.random() < 0.8]
        if kept and rng.random() < 0.5:
            self.doubtful |= {one.body for one in kept}
            assert not ask(client, batch_ack_request(kept)).body, "a new handle was not valid"
            self.done |= {one.body for one in kept}
            return True
        for one in kept:
            if rng.random() < 0.1:
                assert ask(client, change_request(one, 200)).code == 0
            else:
                self.doubtful.add(one.body)
                assert ask(client, ack_request(one)).ext["gantryVerdict"] == "open"
                self.done.add(one.body)
        return True


def ask(client: RawClient, command: Command) -> Command:
    """Send a request and wait for its answer; ConnectionError when the process is gone."""
    return client.call(command.code, command.ext, command.body)


def storm(folder: Path, seed: int, lives: int) -> None:
    rng = random.Random(seed)
    table = Table()
    for life in range(lives):
        with GantryProcess(folder / "data", _CONFIG) as process, RawClient(process.broker) as client:
            table.send(client, f"l{life}", rng.randint(100, 300))
            for _ in range(rng.randint(3, 25)):
                table.consume(client, rng)
            # The last request is under way when the process dies.
            last = pop_request(32, 300)
            client.request(last.code, last.ext)
            process.stop() if rng.random() < 0.3 else process.kill()
    with GantryProcess(folder / "data", _CONFIG) as process, RawClient(process.broker) as client:
        until = time.monotonic() + HANG_S
        while table.sent - table.done:
            assert time.monotonic() < until, f"{len(table.sent - table.done)} of {len(table.sent)} never came"
            if not table.consume(client, rng):
                time.sleep(0.1)
        process.stop()


def test_a_storm_of_pops_over_three_lives_loses_none_and_repeats_none(tmp_path: Path) -> None:
    storm(tmp_path, 11, 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_storms_of_pops_over_six_lives(tmp_path: Path, seed: int) -> None:
    storm(tmp_path, seed, 6)
