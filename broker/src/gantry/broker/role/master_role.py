"""The role of a master: what its slaves receive, and the effects of their acknowledgements.

    a mark moved      our own share (flushed or written) and every acknowledgement -> in-sync tracker -> the confirmed
                      mark; written -> the links are woken
    a table changed   journal -> the links, before the next chunk; administrators wait for the in-sync members
    the set is short  the write gate is shut, with a reason, and reopened when the set is large enough

Before it accepts messages a master waits until the log that it found is confirmed.  Unconfirmed records of a crash may
be in the log of no slave, or of all, and transactions and delayed messages are read from the confirmed log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gantry.append.admit import WriteGate
from gantry.broker.role.role_metrics import RoleMetrics
from gantry.broker.role.slave_feed import SlaveFeed
from gantry.broker.settings.config import BrokerConfig, Role
from gantry.errors import Refusal
from gantry.metadata import journal as journals
from gantry.metadata.journal import Journal
from gantry.model import names
from gantry.replication.hastate import MemberRole
from gantry.replication.slave_links import SlaveLinks
from gantry.wire import ha
from gantry.wire.codes import ResponseCode
from gantry.wire.ha import Ack

if TYPE_CHECKING:
    from gantry.broker.role.mastership import Mastership
    from gantry.broker.role.membership import Membership
    from gantry.metadata.groups import Groups
    from gantry.metadata.topics import Topics
    from gantry.replication.members import SyncSet
    from gantry.replication.serving_lease import LeaseNews
    from gantry.store.store import Store

GATE_SEALED = "sealed"
GATE_SHORT, GATE_TAIL = "too few in-sync replicas", "the log is not confirmed yet"
_OFFSETS_S = 1.0


class Gathered(Protocol):
    """A table that changes often: changed names are sent once a second, or earlier when a request waits for it."""

    touched: set[str] | None

    def keys(self) -> list[str]:
        """Return the names of all entries."""
        ...

    def value(self, key: str) -> object:
        """Return an entry as JSON; None when it was deleted."""
        ...


@dataclass(frozen=True, slots=True)
class ReplicatedTables:
    """The tables whose changes slaves receive besides the log."""

    topics: Topics
    groups: Groups
    merge: Callable[[str, object], None]  # takes over commits that a slave received
    delays: Callable[[], object]  # the progress of delayed messages, None while it is unknown
    gathered: Mapping[str, Gathered]  # by name of the table in the journal


class MasterRole:
    """The role of a master; loop thread only."""

    is_reshaping = False

    def __init__(
        self,
        store: Store,
        mastership: Mastership,
        tables: ReplicatedTables,
        gate: WriteGate,
        config: BrokerConfig,
        member: Membership,
        ended: Callable[[int], None],
    ) -> None:
        """ended: called in the turn in which this master is sealed, with the epoch that ended its own."""
        self.tracker = mastership.tracker
        self.serving_lease = mastership.serving_lease
        self.is_sealed = False
        self.kept_listeners: list[Callable[[], None]] = []
        self.lease_news: LeaseNews | None = None
        self._mastership = mastership
        self._now_s = mastership.clock.monotonic
        self._store = store
        self._tables = tables
        self._journal = Journal(lambda: store.reader.log_start)
        self._gate = gate
        self._is_sync = config.role is Role.SYNC_MASTER
        self._ended = ended
        self._ended_leases = f"{names.REVIVE_TOPIC_PREFIX}{config.cluster}@{names.REVIVE_GROUP}"
        self._tail_end = store.written.offset
        self._slave_links: SlaveLinks | None = None
        self._offsets_due_s = 0.0
        self._delays: object = None
        self._tail_listeners: list[Callable[[], None]] = []
        self._promise_asked: tuple[int, asyncio.Future[None]] | None = None  # of which slave
        self.feed = SlaveFeed(store, mastership, self._journal, config.name, member, self, self.number_touched)

    def wire(self, slave_links: SlaveLinks) -> None:
        """Connect the links, which read from `feed`; nothing listens yet."""
        store = self._store
        self._slave_links = slave_links
        if self.serving_lease is not None:
            self.serving_lease.count(self.tracker.insync.others)
        self._carry(self._tables)
        self._journal.listen(slave_links.wake)
        store.written.listen(slave_links.wake)
        mark = store.share
        mark.listen(self._share)
        self._share(mark.offset)
        self._look()

    def _carry(self, tables: ReplicatedTables) -> None:
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
            journal.carry(table, sorted(gathered.keys(), key=self._ended_leases.__eq__), gathered.value)
            gathered.touched = set()
        journal.keep_behind(journals.OFFSET, self._ended_leases)
        journal.carry(journals.DELAYS, (), lambda _: self._delays)
        journal.keep_behind(journals.DELAYS, "")
        journal.carry(journals.QUEUES, ("",), lambda _: store.expired_ends())
        store.deleting.on_deleted(lambda topic: journal.changed(journals.GRAVE, topic))
        tables.topics.on_change(lambda name: journal.changed(journals.TOPIC, name))
        tables.groups.on_change(lambda name: journal.changed(journals.GROUP, name))

    @property
    def has_confirmed_tail(self) -> bool:
        """Whether everything that was in the log at the start is confirmed."""
        return self._store.confirmed.offset >= self._tail_end

    def on_tail(self, listener: Callable[[], None]) -> None:
        """Register a listener that is called once when that is confirmed."""
        self._tail_listeners.append(listener)

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
        """Return whether it may confirm: a master that is alone in the set needs a valid serving lease."""
        if self.serving_lease is None or len(self.tracker.insync.required) > 1:
            return True
        return self._mastership.may_serve()

    def settled(self, members: SyncSet) -> None:
        """Note the in-sync set that the register holds."""
        self._confirm(self.tracker.settled(members, self._now_s()))
        if self.serving_lease is not None:
            self.serving_lease.count(self.tracker.insync.others)
        self._look()

    def acked(self, place: int, ack: Ack) -> None:
        """Count a slave's acknowledgement of the log and of metadata."""
        is_new = self.tracker.slaves[place].metadata != ack.metadata
        if self.serving_lease is not None and ack.echo:
            self.serving_lease.answered(place, ack.echo / 1e9, self.tracker.insync.others)
        self._confirm(self.tracker.acknowledge(place, ack, self._store.written.offset, self._now_s()))
        if is_new:
            self._tell_kept()
        if GATE_SHORT in self._gate.reasons:
            self._look()

    def _tell_kept(self) -> None:
        for listener in self.kept_listeners:
            listener()

    def went(self, place: int, is_leaving: bool) -> None:
        """Note that a slave's link ended; is_leaving: the slave announced it."""
        self._confirm(self.tracker.lose(place, is_leaving, self._now_s()))
        if self.serving_lease is not None:
            self.serving_lease.lost(place)
        self._tell_kept()
        if is_leaving:
            self._look()

    def commits(self, body: bytes) -> None:
        """Merge offsets that were committed at a slave, as JSON."""
        for key, value in ha.loads_object(body).items():
            self._tables.merge(key, value)

    def tell_tables(self) -> None:
        """Send the changes now that are otherwise sent once a second."""
        self._offsets_due_s = 0.0
        self.tick()

    def is_equal(self, place: int) -> bool:
        """Return whether this slave is connected and has the whole log and all tables."""
        slave = self.tracker.slaves[place]
        is_whole = slave.held >= self._store.written.offset and slave.metadata >= self._journal.number
        return slave.is_connected and is_whole

    @property
    def is_all_confirmed(self) -> bool:
        """Whether every required member has the whole log."""
        return self._store.confirmed.offset >= self._store.written.offset

    def ask_promise(self, place: int) -> asyncio.Future[None]:
        """Have a slave promise the next epoch; done when the promise is on its disk."""
        assert self._slave_links is not None
        promised: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._promise_asked = place, promised
        self._slave_links.ask_promise(place, self.tracker.epoch + 1)
        return promised

    def promised(self, place: int, epoch: int) -> None:
        """Note that a slave has the promise of this epoch on its disk.

        One that this master did not ask for follows a seal in the register, so no message can be confirmed any more
        with a set that has this slave.  A master that cannot read the register learns it only here.
        """
        asked, promised = self._promise_asked or (None, None)
        if place == asked and epoch == self.tracker.epoch + 1:
            if promised is not None and not promised.done():
                promised.set_result(None)
        elif self.serving_lease is not None and place in self.tracker.insync.others and epoch > self.tracker.epoch:
            self.step_down(epoch)

    def step_down(self, epoch: int) -> None:
        """Lead no more in epochs below this one.  Nothing is taken, confirmed or sent to slaves from here on."""
        assert self._slave_links is not None
        if self.is_sealed:
            return
        self.is_sealed = True
        remark = f"service not available now: this master was sealed in epoch {epoch}; ask the group's next one"
        self._gate.shut(GATE_SEALED, Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark))
        self._slave_links.end_links(f"the master was sealed in epoch {epoch}")
        if self.serving_lease is not None:
            self.serving_lease.end()
        self._ended(epoch)

    def tick(self) -> None:
        """Apply time limits and send gathered changes; called ten times a second."""
        assert self._slave_links is not None
        if self.is_sealed:
            return
        now_s = self._now_s()
        self._confirm(self.tracker.tick(self._store.written.offset, now_s, self._journal.number))
        self._tell_kept()
        self._look()
        if now_s >= self._offsets_due_s:
            self._offsets_due_s = now_s + _OFFSETS_S
            self.number_touched()
            delays = self._tables.delays()
            if delays is not None and delays != self._delays:
                self._delays = delays
                self._journal.changed(journals.DELAYS, "")
        if self.lease_news is not None:
            self.lease_news.look(now_s)
        self._slave_links.tick()

    def number_touched(self) -> None:
        """Give numbers to the changes that were only gathered so far.

        The offsets of ended leases always come last.  A slave that has them and lacks an offset that such a lease moved
        would, as the next master, deliver messages again that were acknowledged.
        """
        for table, gathered in self._tables.gathered.items():
            touched, gathered.touched = gathered.touched or set(), set()
            for key in touched - {self._ended_leases}:
                self._journal.changed(table, key)
            if touched and table == journals.OFFSET and gathered.value(self._ended_leases) is not None:
                self._journal.changed(table, self._ended_leases)

    def _look(self) -> None:
        """Refuse writes while they could not be confirmed."""
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
        """Return why this master is not active yet, and what helps."""
        return "this master waits until what its log holds from before is confirmed; start its slaves, or ask later"

    def status(self) -> MemberRole:
        """Return MASTER, or NONE after it was sealed."""
        return MemberRole.NONE if self.is_sealed else MemberRole.MASTER

    @property
    def is_disk_late(self) -> bool:
        """Whether our own disk makes acknowledgements late, while enough slaves are in time."""
        return self.tracker.is_own_disk_late(self._now_s())

    @property
    def are_links_late(self) -> bool:
        """Whether our links to slaves make acknowledgements late, while enough slaves could do without us."""
        return self.tracker.are_links_late(self._now_s())

    def why_not_ready(self) -> str:
        """Return why clients should use another member; empty: they need not."""
        if self.is_sealed:
            return "sealed"
        return "" if self._mastership.may_serve() else "has no serving lease"

    def report(self) -> Mapping[str, object]:
        """Return the in-sync set, and the lag of each slave."""
        now_s, written = self._now_s(), self._store.written.offset
        slaves = {
            str(place): {
                "connected": slave.is_connected,
                "lagBytes": max(0, written - slave.held),
                "lagSeconds": round(slave.log.lag_s(now_s), 3),
            }
            for place, slave in self.tracker.slaves.items()
        }
        lease = self.serving_lease
        serving_lease = {} if lease is None else {"permitMs": max(0, round((lease.until_s - now_s) * 1000))}
        return {"inSync": self.tracker.in_sync, "slaves": slaves, **serving_lease}

    def metrics(self) -> RoleMetrics:
        """Return the in-sync set and the lag of each slave, by brokerId."""
        written, tracker, lease = self._store.written.offset, self.tracker, self.serving_lease
        # The brokerId of a slave: its place in a static pair, its ordinal + 1 where there is a register.
        ids = {str(place + (lease is not None)): slave for place, slave in tracker.slaves.items()}
        return RoleMetrics(
            epoch=tracker.epoch,
            in_sync=len(tracker.in_sync),
            in_sync_needed=tracker.rules.min_in_sync,
            in_sync_changes=tracker.changes,
            serving_lease_s=None if lease is None else max(0.0, lease.until_s - self._now_s()),
            connected={broker_id: slave.is_connected for broker_id, slave in ids.items()},
            lag_bytes={broker_id: max(0, written - slave.held) for broker_id, slave in ids.items()},
        )

    # A writer of `broker.durably`: changes are kept when every in-sync member has them.

    @property
    def asked(self) -> int:
        """The number of changes of metadata, including those that were only gathered so far."""
        self.number_touched()
        return self._journal.number

    @property
    def kept(self) -> int:
        """The number of changes that every in-sync slave has on its disk."""
        return self.tracker.keeps(self._journal.number, self._now_s())

    async def start(self, host: str, port: int) -> None:
        """Listen for slaves; ConfigError when the address cannot be used."""
        assert self._slave_links is not None
        await self._slave_links.start(host, port)

    async def stop(self) -> None:
        if self._slave_links is not None:
            await self._slave_links.close()
