"""What a master's links read of its store, and where their news goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from zlib import crc32

from gantry.replication.handshake import Hello, No, Standing, Welcome, tail_range
from gantry.replication.master import standing_judge
from gantry.wire.ha import Ack

if TYPE_CHECKING:
    from gantry.broker.role.mastership import Mastership
    from gantry.broker.role.membership import Membership
    from gantry.metadata.journal import Journal
    from gantry.store.store import Store


class SlaveNews(Protocol):
    """Who takes what slaves say; a slave is named by its place in the group."""

    def acked(self, place: int, ack: Ack) -> None:
        """A slave has the log, and the changes of metadata, up to there."""
        ...

    def commits(self, body: bytes) -> None:
        """Offsets were committed at a slave; JSON."""
        ...

    def promised(self, place: int, epoch: int) -> None:
        """A slave has the promise of this epoch on its disk."""
        ...

    def went(self, place: int, is_leaving: bool) -> None:
        """A slave's link ended; is_leaving: the slave said goodbye."""
        ...


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """The group's name, this member, and how long a slave's word lasts after a beat, in seconds; 0: no register."""

    group: str
    member: Membership
    grant_s: float


class SlaveFeed:
    """What the links take; implements `replication.slave_links.Source`."""

    def __init__(
        self, store: Store, mastership: Mastership, journal: Journal, facts: GroupFacts, news: SlaveNews
    ) -> None:
        self._store = store
        self._tracker = mastership.tracker
        self._clock = mastership.clock
        self._journal = journal
        self._facts = facts
        self._judge = standing_judge(self._standing, self._tail)
        self.is_waited_for = self._tracker.is_waited_for
        self.acked, self.commits, self.promised, self.went = news.acked, news.commits, news.promised, news.went

    @property
    def marks(self) -> tuple[int, int, int]:
        """Written, confirmed, and where the log begins."""
        store = self._store
        return store.written.offset, store.confirmed.offset, store.reader.log_start

    def _standing(self) -> Standing:
        written, _, log_start = self.marks
        member, settings = self._facts.member, self._store.settings
        return Standing(
            member.identity.cluster_uid,
            self._facts.group,
            member.identity.store_uid,
            self._tracker.epoch,
            member.epochs,
            log_start,
            written,
            settings.segment_bytes,
            member.place,
            member.has_register,
            round(self._facts.grant_s * 1000),
        )

    def _tail(self, end: int) -> int:
        return tail_sum(self._store, end)

    def judge(self, hello: Hello) -> Welcome | No:
        """What to answer a slave."""
        return self._judge(hello)

    def chunk(self, start: int, bytes_max: int) -> tuple[memoryview, int]:
        """Whole records, and where the next ones begin."""
        return self._store.chunk(start, bytes_max)

    def bring_in(self, start: int, bytes_max: int, done: Callable[[], None]) -> int:
        """Have a stretch that is cold read, then call done; how long it is, 0 when it is warm."""
        store = self._store
        if store.written.offset - start <= store.settings.warm_bytes:
            return 0
        room = store.settings.segment_bytes - start % store.settings.segment_bytes
        coming = min(bytes_max, room)
        store.bring_in([(start, coming)], done)
        return coming

    def changes(self, after: int) -> Sequence[tuple[int, list[object]]]:
        """Numbered changes of metadata behind this one."""
        return () if after >= self._journal.number else list(self._journal.after(after))

    def came(self, hello: Hello, address: str) -> str:
        """A slave begins to follow; why it may not, if so."""
        return self._tracker.meet(hello, address, self._clock.monotonic(), self._journal.number)


def tail_sum(store: Store, end: int) -> int:
    """CRC-32 of the last few bytes before `end`, which is in the log."""
    start, stop = tail_range(end, store.reader.log_start, store.settings.segment_bytes)
    return crc32(store.raw(start, stop)) if stop > start else 0
