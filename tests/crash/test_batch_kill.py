"""kill -9 of a real broker between a sink's write, DECIDE, END and "done"; the next driver repeats what is not done.

Writers and driver work on until their connection dies; their successors begin the batch again under another name.  In
the end every batch is delivered once, by one of its tries, whole.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from gantry.client.blockingsinks import BlockingSinks
from gantry.client.connections.blockingsession import BlockingSession
from gantry.client.requests.sink_requests import COMMIT, decided
from gantry.errors import GantryError
from testkit.batchledger import SINK, Batches
from testkit.patience import HANG_S
from testkit.process import GantryProcess
from testkit.rawclient import RawClient
from testkit.transactionledger import delivered, open_count

_CONFIG = {
    "store.flush": "SYNC_FLUSH",
    "store.segment_bytes": str(256 * 1024),
    "messages.body_bytes_max": str(64 * 1024),
    "store.index_slots": "1000",
    "store.index_entries": "4000",
    "transactions.check_interval_s": "0.5",
    "topics.template_queues": "1",
}


def _work(process: GantryProcess, batches: Batches) -> None:
    """Batches until the broker is killed, somewhere in the work of one of them."""
    chance, last = batches.chance, batches.chance.randint(0, 3)
    with BlockingSinks(_name_server(process), within_s=3.0) as sinks, RawClient(process.broker) as client:
        home = sinks.home_of(SINK)
        for number in range(last + 1):
            one = batches.batch(home)
            part = batches.write(client, one, chance.randint(1, 40))
            if number == last:
                threading.Timer(chance.uniform(0.0, 0.05), process.kill).start()
            sinks.commit(one, [part], [home])
            batches.finished += 1
        process.popen.wait(HANG_S)


def _name_server(process: GantryProcess) -> str:
    return "{}:{}".format(*process.addresses["nameserver"])


def _rounds(folder: Path, seed: int, count: int) -> None:
    batches = Batches(random.Random(seed))
    for _ in range(count):
        with GantryProcess(folder / "data", _CONFIG) as process:
            try:
                _work(process, batches)
            except (OSError, GantryError):
                process.kill()
    with GantryProcess(folder / "data", _CONFIG) as process, RawClient(process.broker) as reader:
        with BlockingSinks(_name_server(process)) as sinks:
            one = batches.batch(sinks.home_of(SINK))
            sinks.commit(one, [batches.write(reader, one, 3)], [one.home])
            batches.finished += 1
            assert sinks.look(SINK)[1] == [], "nothing of the sink is open"
        assert open_count(reader) == 0
        batches.check(delivered(reader))
        process.stop()


def test_a_batch_that_was_decided_before_a_kill_is_ended_whole_right_after_the_start(tmp_path: Path) -> None:
    batches = Batches(random.Random(4))
    with GantryProcess(tmp_path / "data", _CONFIG) as process, RawClient(process.broker) as client:
        with BlockingSinks(_name_server(process)) as sinks:
            one = batches.batch(sinks.home_of(SINK))
            part = batches.write(client, one, 20)
            session = BlockingSession(_name_server(process), None)
            decision = session.ask(sinks.cluster().masters()[one.home], decided(one, COMMIT, [part], [one.home]))
            session.close()
        process.kill()
    with GantryProcess(tmp_path / "data", _CONFIG) as process, RawClient(process.broker) as reader:
        with BlockingSinks(_name_server(process)) as sinks:
            sinks.finish(one, decision)
        batches.finished += 1
        assert open_count(reader) == 0
        batches.check(delivered(reader))
        process.stop()


def test_three_kills_leave_every_batch_once(tmp_path: Path) -> None:
    _rounds(tmp_path, 3, 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_twenty_kills_leave_every_batch_once(tmp_path: Path, seed: int) -> None:
    _rounds(tmp_path, seed, 20)
