"""A group of two brokers without sockets: a master whose pops are played, and a slave that may lead at any time.

    group = PopGroup(Flush.SYNC)
    ...                      # as with PopPlay
    group.tell()             # the journal has come to the slave
    group.fail_over(rng)     # the master is gone, and the slave leads
    group.hand_over()        # the same in order

The slave is in the in-sync set.  So its log has all that is confirmed, and as much of what is not as the case has it;
its tables are those of the master at some time, and the journal is never ahead of what is confirmed.  A slave is made
when it has to lead: with a log that it got chunk by chunk, and queues of what it knew to be confirmed.
"""

from __future__ import annotations

import json
import random

from gantry.store import filenames
from gantry.store.background import InlineBackground
from gantry.store.opening import open_store
from gantry.store.settings import Flush
from gantry.store.statefile import JsonState
from gantry.store.store import Store
from testkit.offsetbody import body_of
from testkit.popstoreplay import PopPlay
from testkit.simdisk import SimDisk


class PopGroup(PopPlay):
    """The master of now; its predecessors are gone."""

    def __init__(self, flush: Flush) -> None:
        self._told: tuple[str, str] | None = None
        super().__init__(flush, keeps_tail=True)

    def open(self) -> None:
        """A new life on the disk; a slave is told everything when it joins."""
        super().open()
        self.tell()

    def tell(self) -> None:
        """Bring the slave what the journal has: offsets and resets, and the progress of deliveries."""
        self._told = json.dumps(body_of(self.offsets)), json.dumps(self.service.document())

    def fail_over(self, rng: random.Random) -> None:
        """The master is gone; of what was not confirmed the slave has any part, from the beginning on."""
        confirmed, written = self.store.confirmed.offset, self.store.written.offset
        self._lead(rng.randint(confirmed, written), rng.randint(0, confirmed))

    def hand_over(self) -> None:
        """The slave has everything before the master ends."""
        self.flush()
        self.tell()
        self._lead(self.store.written.offset, self.store.confirmed.offset)

    def _lead(self, end: int, known: int) -> None:
        """end: how far the slave's log goes, or to the next record; known: what it knew to be confirmed."""
        disk = SimDisk()
        disk.now_ms = self.clock.now_ms
        slave = open_store(self.settings, disk, self.clock, InlineBackground(at_once=True))
        self._copy(slave, end)
        slave.confirmed.advance(self._record_below(known))
        slave.tick(self.clock.now_ms())
        background = InlineBackground(at_once=True)
        for name, text in zip(("consumerOffset.json", "delayOffset.json"), self._told or (), strict=True):
            if text != "null":
                path = filenames.config("/store", name)
                JsonState(path, disk, background.housekeeper, lambda path, error: None).save_now(json.loads(text))
        slave.close(is_settled=False)
        self.disk = disk
        self.open()

    def _copy(self, slave: Store, end: int) -> None:
        while (start := slave.written.offset) < end:
            slave.append_raw(start, self.store.chunk(start, max(end - start, 1))[0])

    def _record_below(self, offset: int) -> int:
        """Return the last boundary of a record that is not above this offset."""
        at = 0
        while at < offset:
            _, following = self.store.chunk(at, max(offset - at, 1))
            if following > offset:
                break
            at = following
        return at
