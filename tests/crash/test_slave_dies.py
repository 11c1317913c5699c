"""A slave dies at every single operation of a short life: what it then shows has to be what its master shows.

A slave's recovery point is behind what it has written down elsewhere: queue files, index and the table of queue ends
are made durable before it, and what it knows to be confirmed at a start is where that point stands.  So a start finds
tables that are ahead of the log that it may show.
"""

from __future__ import annotations

import random
from dataclasses import replace

from gantry.store.background import InlineBackground
from gantry.store.opening import open_store
from gantry.store.store import Store
from testkit import storeplay
from testkit.keyed import query
from testkit.ledger import LogLedger
from testkit.simclock import SimClock
from testkit.simdisk import Faults, PowerCut, SimDisk
from testkit.storeplay import StorePlay

_SETTINGS = replace(storeplay.settings(), keeps_tail=True)


def _master() -> Store:
    play = StorePlay(SimDisk(), LogLedger())
    store = play.open()
    chance = random.Random(5)
    for _ in range(10):
        play.append(chance.randint(1, 4), chance.choice((10, 300, 900)))
    return store


def _follow(master: Store, disk: SimDisk) -> None:
    """In steps: a queue's first records are confirmed, and written down, in the middle of it."""
    clock = SimClock()
    slave = open_store(_SETTINGS, disk, clock, InlineBackground())
    while slave.written.offset < master.written.offset:
        start = slave.written.offset
        slave.append_raw(start, master.chunk(start, 2500)[0])
        slave.confirmed.advance(start)
        clock.advance(600)
        for _ in range(6):
            slave.tick(clock.now_ms())
    slave.close()


def _shown(store: Store) -> dict[tuple[str, int | str], list[object]]:
    """Every queue's entries, and what is found by each key."""
    found: dict[tuple[str, int | str], list[object]] = {}
    for key in (f"k{number}" for number in range(5)):
        found["orders", key] = [bytes(one) for one in query(store.reader, "orders", key, 64, 0, 1 << 50)]
    for topic, queue_id in store.queues():
        first, end = store.queue_range(topic, queue_id) or (0, 0)
        found[topic, queue_id] = [first, *(store.reader.entry(topic, queue_id, at) for at in range(first, end))]
    return found


def _goes_on(master: Store, disk: SimDisk) -> Store:
    """Another process on this disk, which gets what is missing and hears that all of it is confirmed."""
    slave = open_store(_SETTINGS, disk, SimClock(), InlineBackground())
    while slave.written.offset < master.written.offset:
        start = slave.written.offset
        slave.append_raw(start, master.chunk(start, 1 << 20)[0])
    slave.confirmed.advance(slave.written.offset)
    return slave


def test_a_slave_that_dies_at_any_operation_shows_what_its_master_shows() -> None:
    """Killed and without power by turns."""
    master = _master()
    expected = _shown(master)
    queues = list(master.queues())
    assert len(queues) == 4 and min(map(len, expected.values())) > 1
    at, is_cut = 0, True
    while is_cut:
        at += 1
        disk = SimDisk()
        disk.faults = Faults(power_cut_at=at)
        try:
            _follow(master, disk)
            is_cut = False
        except PowerCut:
            pass
        disk = disk.crash(random.Random(at)) if at % 2 and is_cut else disk.restart()
        again = _goes_on(master, disk)
        assert _shown(again) == expected, f"dead at operation {at}"
        again.close()
        again = _goes_on(master, disk)
        ends = [again.next_queue_offset(*queue) for queue in queues]
        assert ends == [master.next_queue_offset(*queue) for queue in queues], f"dead at operation {at}"
    assert at > 100
