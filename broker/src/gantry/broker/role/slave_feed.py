"""The store's data for a master's links, and the receiver of what slaves send."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from zlib import crc32

from gantry.replication.handshake import Hello, MasterStatus, No, Welcome, judge, tail_range
from gantry.replication.link_ends import SlaveNews

if TYPE_CHECKING:
    from gantry.broker.role.mastership import Mastership
    from gantry.broker.role.membership import Membership
    from gantry.metadata.journal import Journal
    from gantry.store.store import Store


class SlaveFeed:
    """The input of the links; implements `replication.link_ends.MasterEnd`."""

    def __init__(
        self,
        store: Store,
        mastership: Mastership,
        journal: Journal,
        group: str,
        member: Membership,
        news: SlaveNews,
        number_touched: Callable[[], None],
    ) -> None:
        """number_touched: gives numbers to the changes of metadata that were only gathered so far."""
        self._store = store
        self._tracker = mastership.tracker
        self._clock = mastership.clock
        self._journal = journal
        self._group = group
        self._member = member
        self.is_waited_for = self._tracker.is_waited_for
        self.acked, self.commits, self.promised, self.went = news.acked, news.commits, news.promised, news.went
        self._number_touched = number_touched

    @property
    def marks(self) -> tuple[int, int, int]:
        """The written and the confirmed offset, and where the log begins."""
        store = self._store
        return store.written.offset, store.confirmed.offset, store.reader.log_start

    def _standing(self) -> MasterStatus:
        written, _, log_start = self.marks
        member, settings = self._member, self._store.settings
        return MasterStatus(
            member.identity.cluster_uid,
            self._group,
            member.identity.store_uid,
            self._tracker.epoch,
            member.epochs,
            log_start,
            written,
            settings.segment_bytes,
            member.place,
            member.has_register,
        )

    def judge(self, hello: Hello) -> Welcome | No:
        """Return the answer to a slave's hello."""
        return judge(self._standing(), hello, lambda end: tail_sum(self._store, end))

    def chunk(self, start: int, bytes_max: int) -> tuple[memoryview, int]:
        """Return whole records from `start` on, and the offset of the next ones."""
        return self._store.chunk(start, bytes_max)

    def bring_in(self, start: int, bytes_max: int, done: Callable[[], None]) -> int:
        """Read a stretch of cold log, then call done. Return its length in bytes, 0 when it is warm already."""
        store = self._store
        if store.written.offset - start <= store.settings.warm_bytes:
            return 0
        room = store.settings.segment_bytes - start % store.settings.segment_bytes
        coming = min(bytes_max, room)
        store.bring_in([(start, coming)], done)
        return coming

    @property
    def needed(self) -> int:
        """The number of the newest change of metadata that must be sent before the records behind it."""
        return self._journal.needed

    def changes(self, after: int) -> Iterator[tuple[int, list[object]]]:
        """Yield the numbered changes of metadata after this one; the caller may rest in between."""
        if after >= self._journal.number:
            return
        self._number_touched()  # values are those of now, so what moved before them goes before them
        for batch in self._journal.after(after):
            yield batch
            self._number_touched()

    def came(self, hello: Hello, address: str) -> str:
        """Note that a slave begins to follow. Return why it may not; empty: it may."""
        return self._tracker.meet(hello, address, self._clock.monotonic(), self._journal.number)


def tail_sum(store: Store, end: int) -> int:
    """Return the CRC-32 of the last `TAIL_BYTES` before `end`, or fewer, within one segment."""
    start, stop = tail_range(end, store.reader.log_start, store.settings.segment_bytes)
    return crc32(store.raw(start, stop)) if stop > start else 0
