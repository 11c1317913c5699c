"""The master's part of a broker: what its slaves get, and what follows from their acknowledgements.

    a mark moved      our own share (flushed or written) and every acknowledgement -> in-sync tracker -> the confirmed
                      mark; written -> the links are woken
    a table changed   journal -> the links, before the next chunk; who administers waits for the in-sync members
    the set is short  the gate of writes is shut, with a reason, and opened when it is not

Before it takes messages a master waits until the log that it found is confirmed: what a crash left unconfirmed may be
in the log of no slave, or of all of them, and transactions and delays are read from what is confirmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from zlib import crc32

from gantry.append.admit import WriteGate
from gantry.clock import Clock
from gantry.errors import Refusal
from gantry.metadata import journal as journals
from gantry.metadata.journal import Journal
from gantry.metadata.offsets import Offsets
from gantry.replication.handshake import Hello, No, Standing, Welcome, tail_range
from gantry.replication.in_sync_tracker import InSyncTracker
from gantry.replication.master import standing_judge
from gantry.replication.slave_links import SlaveLinks
from gantry.wire import ha
from gantry.wire.codes import ResponseCode
from gantry.wire.ha import Ack

if TYPE_CHECKING:
    from gantry.broker.role.membership import Membership
    from gantry.metadata.groups import Groups
    from gantry.metadata.topics import Topics
    from gantry.replication.members import SyncSet
    from gantry.replication.serving_lease import ServingLease
    from gantry.store.store import Store

GATE_SEALED = "sealed"
GATE_SHORT, GATE_TAIL = "too few in-sync replicas", "the log is not confirmed yet"
_OFFSETS_S = 1.0
_LATE = {
    "self": ResponseCode.FLUSH_DISK_TIMEOUT,
    "slow": ResponseCode.FLUSH_SLAVE_TIMEOUT,
    "gone": ResponseCode.SLAVE_NOT_AVAILABLE,
}


class Gathered(Protocol):
    """A table that changes often: what was touched is told once a second, or when somebody waits for it."""

    touched: set[str] | None

    def keys(self) -> list[str]:
        """The names of its things."""
        ...

    def value(self, key: str) -> object:
        """A thing as JSON, None when it is gone."""
        ...


@dataclass(frozen=True, slots=True)
class Tables:
    """What slaves are told of, besides the log."""

    topics: Topics
    groups: Groups
    offsets: Offsets
    delays: Callable[[], object]  # how far deliveries are, None while that is not known
    gathered: Mapping[str, Gathered]  # by table of the journal


class Source:
    """What the links take; implements `replication.slave_links.Source`."""

    def __init__(self, store: Store, tracker: InSyncTracker, journal: Journal, group: str, member: Membership) -> None:
        self._store = store
        self._tracker = tracker
        self._journal = journal
        self._group = group
        self._member = member
        self.is_waited_for = tracker.is_waited_for
        self.judge_by_log = standing_judge(self._standing, self._tail)
        self.on_acked: Callable[[int, Ack], None] = lambda place, ack: None
        self.on_promised: Callable[[int, int], None] = lambda place, epoch: None
        self.grant_s = 0.0
        self.on_went: Callable[[int, bool], None] = lambda place, is_leaving: None
        self.on_commits: Callable[[bytes], None] = lambda body: None
        self.now_s: Callable[[], float] = lambda: 0.0

    @property
    def marks(self) -> tuple[int, int, int]:
        """Written, confirmed, and where the log begins."""
        store = self._store
        return store.written.offset, store.confirmed.offset, store.reader.log_start

    def _standing(self) -> Standing:
        written, _, log_start = self.marks
        identity, settings = self._member.identity, self._store.settings
        return Standing(
            identity.cluster_uid,
            self._group,
            identity.store_uid,
            self._tracker.epoch,
            self._member.epochs,
            log_start,
            written,
            settings.segment_bytes,
            self._member.place,
            self._member.has_register,
            round(self.grant_s * 1000),
        )

    def _tail(self, end: int) -> int:
        return tail_sum(self._store, end)

    def judge(self, hello: Hello) -> Welcome | No:
        """What to answer a slave."""
        return self.judge_by_log(hello)

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
        return self._tracker.meet(hello, address, self.now_s())

    def acked(self, place: int, ack: Ack) -> None:
        """It has so much."""
        self.on_acked(place, ack)

    def commits(self, body: bytes) -> None:
        """Offsets that were committed there."""
        self.on_commits(body)

    def promised(self, place: int, epoch: int) -> None:
        """It has the promise of this epoch on its disk."""
        self.on_promised(place, epoch)

    def went(self, place: int, is_leaving: bool) -> None:
        """Its link ended."""
        self.on_went(place, is_leaving)


def tail_sum(store: Store, end: int) -> int:
    """CRC-32 of the last few bytes before `end`, which is in the log."""
    start, stop = tail_range(end, store.reader.log_start, store.settings.segment_bytes)
    return crc32(store.raw(start, stop)) if stop > start else 0


class MasterRole:
    """The wiring of a master; loop thread only."""

    def __init__(
        self, store: Store, tracker: InSyncTracker, source: Source, tables: Tables, journal: Journal, gate: WriteGate
    ) -> None:
        self.tracker = tracker
        self.is_sealed = False
        self.kept_listeners: list[Callable[[], None]] = []
        self._store = store
        self._source = source
        self._tables = tables
        self._journal = journal
        tracker.newest = lambda: journal.number
        self._gate = gate
        self._is_sync = False
        self._tail_end = store.written.offset
        self._clock: Clock | None = None
        self._slave_links: SlaveLinks | None = None
        self.serving_lease: ServingLease | None = None  # there is a register
        self._offsets_due_s = 0.0
        self._delays: object = None
        self._tail_listeners: list[Callable[[], None]] = []

    def wire(self, slave_links: SlaveLinks, is_sync: bool) -> None:
        """Connect everything; nothing listens yet.  is_sync: SYNC_MASTER, whose writes need the set."""
        store, source, tables = self._store, self._source, self._tables
        self._slave_links, self._clock = slave_links, slave_links.clock
        self._is_sync = is_sync
        source.now_s = slave_links.clock.monotonic
        source.on_acked, source.on_went, source.on_commits = self._acked, self._went, self._commits
        self._carry(tables)
        self._journal.listen(slave_links.wake)
        store.written.listen(slave_links.wake)
        mark = store.share
        mark.listen(self._share)
        self._share(mark.offset)
        self._look()

    def _carry(self, tables: Tables) -> None:
        journal, store = self._journal, self._store
        lives = store.generations
        journal.carry(journals.GRAVE, list(lives.all()), lives.life)
        journal.carry(
            journals.TOPIC,
            tables.topics.names(),
            lambda name: None if (config := tables.topics.get(name)) is None else config.to_json(),
        )
        journal.carry(
            journals.GROUP,
            [group.name for group in tables.groups.all()],
            lambda name: None if (group := tables.groups.get(name)) is None else group.to_json(),
        )
        for table, gathered in tables.gathered.items():
            journal.carry(table, gathered.keys(), gathered.value)
            gathered.touched = set()
        journal.carry(journals.DELAYS, (), lambda _: self._delays)
        journal.carry(journals.QUEUES, ("",), lambda _: store.expired_ends())
        tables.topics.on_delete(lambda topic: journal.changed(journals.GRAVE, topic.name))
        tables.topics.on_change(lambda name: journal.changed(journals.TOPIC, name))
        tables.groups.on_change(lambda name: journal.changed(journals.GROUP, name))

    @property
    def has_confirmed_tail(self) -> bool:
        """Whether all that was in the log at the start is confirmed."""
        return self._store.confirmed.offset >= self._tail_end

    def on_tail(self, listener: Callable[[], None]) -> None:
        """Hear when it is."""
        self._tail_listeners.append(listener)

    def _now_s(self) -> float:
        assert self._clock is not None
        return self._clock.monotonic()

    def _share(self, offset: int) -> None:
        self._confirm(self.tracker.share(offset, self._now_s()))

    def _confirm(self, offset: int) -> None:
        store = self._store
        if offset > store.confirmed.offset and not self.is_sealed and self._may_confirm():
            store.confirmed.advance(min(offset, store.written.offset))
            if self._tail_listeners and self.has_confirmed_tail:
                listeners, self._tail_listeners = self._tail_listeners, []
                for listener in listeners:
                    listener()

    def _may_confirm(self) -> bool:
        """Alone in the set, nobody's promise stops us: only the clock does."""
        if self.serving_lease is None or len(self.tracker.insync.required) > 1:
            return True
        return self.serving_lease.is_valid(self._now_s())

    def _others(self) -> list[int]:
        insync = self.tracker.insync
        return [member.ordinal for member in insync.required if member != insync.share]

    def settled(self, members: SyncSet) -> None:
        """The register holds this set."""
        self._confirm(self.tracker.settled(members, self._now_s()))
        if self.serving_lease is not None:
            self.serving_lease.count(self._others())
        self._look()

    def _acked(self, place: int, ack: Ack) -> None:
        is_new = self.tracker.slaves[place].metadata != ack.metadata
        if self.serving_lease is not None and ack.echo:
            self.serving_lease.granted(place, ack.echo / 1e9, self._others())
        self._confirm(self.tracker.acknowledge(place, ack, self._store.written.offset, self._now_s()))
        if is_new:
            self._tell_kept()
        if GATE_SHORT in self._gate.reasons:
            self._look()

    def _tell_kept(self) -> None:
        for listener in self.kept_listeners:
            listener()

    def _went(self, place: int, is_leaving: bool) -> None:
        self._confirm(self.tracker.lose(place, is_leaving, self._now_s()))
        self._tell_kept()
        if is_leaving:
            self._look()

    def _commits(self, body: bytes) -> None:
        for key, value in ha.loads_object(body).items():
            self._tables.offsets.merge(key, value)

    def tell_tables(self) -> None:
        """What is told by the clock otherwise is told now."""
        self._offsets_due_s = 0.0
        self.tick()

    def is_equal(self, place: int) -> bool:
        """Whether this slave has all that we have, tables too, and everybody who is needed has the log."""
        written, slave = self._store.written.offset, self.tracker.slaves[place]
        has_log = self._store.confirmed.offset >= written and slave.held >= written
        return has_log and slave.metadata >= self._journal.number

    def ask_promise(self, place: int) -> asyncio.Future[None]:
        """Have a slave promise the next epoch; done when it has it on its disk."""
        assert self._slave_links is not None
        promised: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def said(other: int, epoch: int) -> None:
            if other == place and epoch == self.tracker.epoch + 1 and not promised.done():
                promised.set_result(None)

        self._source.on_promised = said
        self._slave_links.ask_promise(place, self.tracker.epoch + 1)
        return promised

    def seal(self, epoch: int) -> None:
        """Lead no more: the epoch is promised.  Nothing is taken, confirmed or sent to slaves from here on."""
        assert self._slave_links is not None
        self.is_sealed = True
        remark = f"service not available now: this master was sealed in epoch {epoch}; ask the group's next one"
        self._gate.shut(GATE_SEALED, Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark))
        self._slave_links.end_links(f"the master was sealed in epoch {epoch}")

    def tick(self) -> None:
        """What goes by the clock, ten times a second."""
        assert self._slave_links is not None
        if self.is_sealed:
            return
        now_s = self._now_s()
        self._confirm(self.tracker.tick(self._store.written.offset, now_s))
        self._look()
        if now_s >= self._offsets_due_s:
            self._offsets_due_s = now_s + _OFFSETS_S
            self._number_touched()
            delays = self._tables.delays()
            if delays is not None and delays != self._delays:
                self._delays = delays
                self._journal.changed(journals.DELAYS, "")
        self._slave_links.tick()

    def _number_touched(self) -> None:
        for table, gathered in self._tables.gathered.items():
            touched, gathered.touched = gathered.touched or (), set()
            for key in touched:
                self._journal.changed(table, key)

    def _look(self) -> None:
        """Refuse writes that could not be confirmed."""
        if not self._is_sync:
            return
        if self.tracker.is_short(self._now_s()):
            if GATE_SHORT not in self._gate.reasons:
                self._gate.shut(GATE_SHORT, Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, self._short()))
        else:
            self._gate.reopen(GATE_SHORT)

    def _short(self) -> str:
        least = self.tracker.rules.min_in_sync
        there = 1 + sum(1 for slave in self.tracker.slaves.values() if slave.is_connected)
        return (
            f"service not available now: in-sync replicas not enough: {there} connected, {least} needed; "
            "start a slave, or lower inSyncReplicas (replication.min_in_sync) and restart"
        )

    def why_not(self) -> str:
        """Why this master does not work yet."""
        return "this master waits until what its log holds from before is confirmed; start its slaves, or ask later"

    def why_late(self, end: int) -> int:
        """The send status of a message below `end` that was not confirmed in time."""
        return _LATE[self.tracker.why_late(end, self._now_s())]

    # A writer of `broker.durably`: changes are kept when every in-sync member has them.

    @property
    def asked(self) -> int:
        """How many changes of metadata there were, those that were only gathered so far among them."""
        self._number_touched()
        return self._journal.number

    @property
    def kept(self) -> int:
        """How many of them every in-sync slave has on its disk."""
        return self.tracker.keeps(self._journal.number)

    async def start(self, host: str, port: int) -> None:
        """Slaves may come."""
        assert self._slave_links is not None
        await self._slave_links.start(host, port)

    async def stop(self) -> None:
        """No more links."""
        if self._slave_links is not None:
            await self._slave_links.close()
