"""kill -9 and orderly restarts of the real process in the middle of pops: none is lost, none comes after its ack.

Two consumers pop and acknowledge in batches and singly, change times, and leave some messages to their end.  The table
has what each answer said; what was not answered when the process died may be either way.
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest

from gantry.leaves.frames import Command
from testkit.patience import HANG_S
from testkit.popplay import Popped, ack_request, batch_ack_request, change_request, lease_of, pop_request, popped
from testkit.process import GantryProcess
from testkit.rawclient import RawClient, send_fields

_CONFIG = {"name": "broker-a", "store.index_slots": "10000", "store.index_entries": "80000"}
_VERDICTS = ("open", "stale")


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
            late = late_in(ask(client, batch_ack_request(kept)).body, kept)
            self.done |= {one.body for one in kept if (lease_of(one), one.offset) not in late}
            return True
        for one in kept:
            if rng.random() < 0.1:
                assert verdict(ask(client, change_request(one, 200))) in _VERDICTS
            else:
                self.doubtful.add(one.body)
                said = verdict(ask(client, ack_request(one)))
                assert said in _VERDICTS
                self.done |= {one.body} if said == "open" else set()
        return True


def verdict(answer: Command) -> str:
    """What the broker says of a handle; on a busy machine its lease may have ended, and the message comes again."""
    return str(answer.ext.get("gantryVerdict", "open" if answer.code == 0 else "none"))


def late_in(body: bytes, kept: list[Popped]) -> set[tuple[tuple[str, ...], int]]:
    """The lease and offset of each message that was acknowledged too late, as the answer of a batch names them."""
    leases = list(dict.fromkeys(map(lease_of, kept)))
    return {(leases[entry], offset) for entry, offset in json.loads(body)["stale"]} if body else set()


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
