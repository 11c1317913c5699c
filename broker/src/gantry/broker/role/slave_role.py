"""The slave's part of a broker: what comes from its master, and what it does with it.

    a chunk came      -> the log; what the master confirmed -> the confirmed mark, hence queues, index, held pulls
    a change came     -> topics, groups, offsets; acknowledged when it is on the disk, and no chunk behind it before
    our share moved   -> the link acknowledges
    the log must change first -> the plan is put on the disk, and the broker starts again to carry it out
    a topic lives otherwise   -> the same, to build its queues again

Offsets that consumers commit here go to the master, at once or when there is one again; until it has them they count
here as well.  Deleting follows the master: nothing that its log still has is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gantry.append.admit import WriteGate
from gantry.broker.role.forwarded_commits import ForwardedCommits
from gantry.broker.role.group_role import RoleMetrics
from gantry.broker.role.slave_feed import tail_sum
from gantry.broker.role.slave_tables import Tables, take_over
from gantry.errors import Refusal, StoreError
from gantry.replication import member_files
from gantry.replication.epochs import EpochTable
from gantry.replication.handshake import Hello, Step, Welcome
from gantry.replication.hastate import Role as MemberRole
from gantry.replication.link import Connector, SlaveLink
from gantry.replication.member_files import Identity, Plan
from gantry.store import reviving
from gantry.transport.tasks import essential
from gantry.wire.codes import ResponseCode

if TYPE_CHECKING:
    from gantry.broker.role.membership import Membership
    from gantry.broker.role.promise_writer import PromiseWriter
    from gantry.store.background import Worker
    from gantry.store.disk import Disk
    from gantry.store.reviving import Revival
    from gantry.store.store import Store

log = logging.getLogger("gantry.replication")

GATE_SLAVE = "a slave"
_COMMITS_S = 1.0
_LOOK_FOR_MASTER_S = 3.0
_NAMES_SAID = 3
_SKIPPED_MAX = 100


@dataclass(frozen=True, slots=True)
class Place:
    """Where this slave's member files are kept, and by whom."""

    disk: Disk
    root: str
    housekeeper: Worker
    group: str


@dataclass(frozen=True, slots=True)
class Outside:
    """What the rest of the broker knows and does: the master's replication port and its address for clients, as far as
    known; asking name servers again; starting again; looking often at who leads.
    """

    master: Callable[[], str]
    master_address: Callable[[], str]
    ask_again: Callable[[], None]
    restart: Callable[[str], None]
    expect_news: Callable[[], None]


class SlaveRole:
    """Implements `replication.link.Sink`; loop thread only."""

    def __init__(
        self,
        store: Store,
        member: Membership,
        promise_writer: PromiseWriter,
        place: Place,
        tables: Tables,
        gate: WriteGate,
        outside: Outside,
    ) -> None:
        self.master_written = 0
        self.granted_until_s = 0.0
        # The log will be cut, or begun elsewhere, or queues be built again from it, before anything else happens.
        self.is_reshaping = False
        self._store = store
        self._member = member
        self._promise_writer = promise_writer
        self._grant_s = 0.0
        self._place = place
        self._tables = tables
        self._gate = gate
        self.outside = outside
        self._connector: Connector | None = None
        self._running: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._wanted: tuple[SlaveLink | None, int] = (None, 0)
        self._commits = ForwardedCommits(tables.offsets)
        self._master_log_start = store.reader.log_start
        self._commits_due_s = self._ask_due_s = 0.0
        self._remark = ""
        self.skipped: set[str] = set()  # tables of the master that this version does not know
        self._was_full = False  # as the master was told when the link began

    def wire(self, connector: Connector) -> None:
        """Connect everything; nothing runs yet."""
        self._connector = connector
        self._commits.begin()
        self._store.retention.owe(lambda: self._master_log_start)
        self._store.share.listen(connector.held)
        self._refuse()

    @property
    def is_alone(self) -> bool:
        """Whether the master is away."""
        return self._connector is None or not self._connector.is_following

    @property
    def refused(self) -> str:
        """Why the master does not have this member, when it said so for good; empty: it did not."""
        return "" if self._connector is None or not self.is_alone else self._connector.refused

    @property
    def epoch(self) -> int:
        """The epoch that is followed; 0: none."""
        link = self._connector.link if self._connector is not None else None
        return link.machine.epoch if link is not None else 0

    def start(self, fail: Callable[[str], None]) -> None:
        """Look for the master and follow it; fail: the process has to end, and why."""
        assert self._connector is not None
        self._running = essential(self._connector.run(), "following the master", fail)

    async def stop(self) -> None:
        """Say goodbye to it."""
        if self._connector is not None and self._connector.link is not None:
            self._connector.link.leave()
        for task in (self._running, self._keeper):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})

    # What the link asks and brings

    def hello(self) -> tuple[Hello, int]:
        """What this slave says about itself now, and up to where it holds its log by its flush policy."""
        store, identity = self._store, self._member.identity
        start, end = store.reader.log_start, store.written.offset
        hello = Hello(
            identity.cluster_uid,
            self._place.group,
            self._member.place,
            identity.store_uid,
            self._member.epochs,
            start,
            end,
            store.confirmed.offset,
            store.settings.segment_bytes,
            tail_sum(store, end),
            self._member.me.member.incarnation if self._member.has_register else -1,
            self._member.process,
            store.is_short,
        )
        self._was_full = hello.is_full
        return hello, self.held()

    def master(self) -> str:
        """Where the master listens for us."""
        return "" if self.is_reshaping else self.outside.master()

    def held(self) -> int:
        """Up to where it holds its log by its flush policy."""
        return self._store.share.offset

    def adopt(self, welcome: Welcome, done: Callable[[StoreError | None], None]) -> None:
        """Put the cluster and its epochs on the disk, then call done."""
        if self._member.has_register:
            # An epoch is promised before anything is acknowledged in it.
            writer = self._promise_writer
            writer.promise(welcome.epoch, lambda error: done(error) if error else self._adopt(welcome, done))
        else:
            self._adopt(welcome, done)

    def _adopt(self, welcome: Welcome, done: Callable[[StoreError | None], None]) -> None:
        # Here, since a seal may have come while this epoch was promised.  The housekeeper keeps the order: behind a
        # promise no table of a lower epoch goes to the disk, which would hide in which epoch this member has been.
        refusal = self._refusal(welcome)
        if refusal is not None:
            done(refusal)
            return
        place = self._place
        identity = Identity(welcome.cluster_uid, self._member.identity.store_uid)

        def job() -> None:
            if identity != self._member.identity:
                member_files.save_identity(place.disk, place.root, identity)
            member_files.save_epochs(place.disk, place.root, welcome.epochs)

        def finished(error: StoreError | None) -> None:
            if error is None:
                self._member.identity, self._member.epochs = identity, welcome.epochs
                self._grant_s = welcome.grant_ms / 1000
                error = self._refusal(welcome)  # for a seal that came meanwhile: nothing begins below it
            done(error)

        if not place.housekeeper.submit(job, finished):
            done(StoreError("too much waits for the disk"))

    def _refusal(self, welcome: Welcome) -> StoreError | None:
        promised = self._member.promised
        if welcome.epoch >= promised:
            return None
        return StoreError(
            f"this member promised epoch {promised}, the master is in {welcome.epoch}; restart the master "
            "after it was sealed as well, or empty this slave's folder"
        )

    def ended(self) -> None:
        """Look for a new master: the link ended."""
        self.outside.expect_news()

    def fence(self, epoch: int) -> None:
        """Follow no master below this epoch, which is promised or about to be."""
        self.cut_off(f"epoch {epoch} was promised")

    def step_down(self, epoch: int) -> None:
        """Follow no master below this epoch, which is promised."""
        self.fence(epoch)

    def promise(self, epoch: int, done: Callable[[StoreError | None], None]) -> None:
        """The master asks for it: it wants to hand the group over."""
        self._promise_writer.promise(epoch, done)
        self.outside.expect_news()

    def beaten(self, now_s: float) -> None:
        """The master's beat came: no other epoch is promised for a while."""
        self.granted_until_s = now_s + self._grant_s

    def leave_lower(self, epoch: int) -> None:
        """Somebody leads this epoch: a link of a lower one is over."""
        link = self._connector.link if self._connector is not None else None
        if link is not None and link.machine.is_following and link.machine.epoch < epoch:
            link.end(f"epoch {epoch} has begun")

    def cut_off(self, why: str) -> None:
        """End the link that stands."""
        if self._connector is not None and self._connector.link is not None:
            self._connector.link.end(why)

    def hurry(self) -> None:
        """Try to reach the master now."""
        if self._connector is not None:
            self._connector.hurry()

    def reshape(self, welcome: Welcome) -> None:
        """Have the next start change the log, and start again."""
        if self._refusal(welcome) is not None:
            return  # the link has ended; what this master wants counts no longer
        mine = set(self._member.epochs.entries)
        kept = [one for one in welcome.epochs.entries if one in mine and one.start <= welcome.at]
        plan = Plan(welcome.step, welcome.at, EpochTable(tuple(kept) if welcome.step is Step.CUT else ()))
        why = f"the log has to {'be cut' if welcome.step is Step.CUT else 'begin'} at {welcome.at} to follow the master"
        self.plan(plan, why, partial(_planned, why))

    def plan(self, plan: Plan, why: str, done: Callable[[StoreError | None], None]) -> None:
        """Follow nobody any more, have the next start change the log, and start again; done hears whether it will."""
        place = self._place
        self._start_again(partial(member_files.save_plan, place.disk, place.root, plan), why, done)

    def _start_again(self, job: Callable[[], None], why: str, done: Callable[[StoreError | None], None]) -> None:
        """Follow nobody any more, and start again when the job has put on the disk what that start has to do."""
        self.is_reshaping = True
        self.cut_off(why)

        def planned(error: StoreError | None) -> None:
            if error is None:
                self.outside.restart(why)
            else:
                self.is_reshaping = False
            done(error)

        if not self._place.housekeeper.submit(job, planned):
            planned(StoreError("too much waits for the disk"))

    def append(self, start: int, records: memoryview) -> int:
        """Write records; the log's new end."""
        return self._store.append_raw(start, records)

    def marks(self, confirmed: int, log_start: int, written: int) -> None:
        """What is confirmed of what we have; where the master's log begins and ends."""
        self._master_log_start = log_start
        self.master_written = max(written, self._store.written.offset)
        self._store.confirmed.advance(min(confirmed, self._store.written.offset))

    def apply(self, number: int, changes: list[object]) -> None:
        """Take changes of metadata over; ValueError when they cannot be."""
        tables = self._tables
        self._commits.gather()  # else what was told here a moment ago would give way to what the master knew before
        revivals, unknown = take_over(changes, self._store, tables, self._commits.away)
        self._name_skipped(unknown)
        tables.topics.file.save_if_changed()
        tables.groups.file.save_if_changed()
        tables.save_decisions()
        if revivals:
            self._revive(revivals)
            return
        self._wanted = (None if self._connector is None else self._connector.link, number)
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.ensure_future(self._keep())

    def _name_skipped(self, unknown: set[str]) -> None:
        for table in sorted(unknown - self.skipped)[: _SKIPPED_MAX - len(self.skipped)]:
            self.skipped.add(table)
            log.warning("changes of the table %r are skipped; the master's version is newer, update this slave", table)

    def _revive(self, revivals: Mapping[str, Revival]) -> None:
        """Have the next start build queues again, and start again; the master tells the rest once more then."""
        place, names = self._place, ", ".join(sorted(revivals)[:_NAMES_SAID])
        why = f"{len(revivals)} topics, {names} among them, were deleted here otherwise than in the group: their "
        why += "queues have to be built again from the log"
        self._start_again(partial(reviving.note, place.disk, place.root, revivals), why, partial(_planned, why))

    async def _keep(self) -> None:
        """Acknowledge changes when they are on the disk."""
        while True:
            link, number = self._wanted
            is_kept = await self._tables.durably.caught_up()
            if is_kept and self._connector is not None and link is not None and self._connector.link is link:
                self._connector.kept(number)
            if is_kept and self._wanted == (link, number):
                return

    # What goes by the clock

    def tick(self) -> None:
        """Ten times a second."""
        assert self._connector is not None
        self._connector.tick()
        if self._was_full and not self._store.is_short:
            self._was_full = False
            self.cut_off("there is room on the disk again, which the master learns from the next link")
        now_s = self._connector.clock.monotonic()
        if now_s >= self._commits_due_s:
            self._commits_due_s = now_s + _COMMITS_S
            link = self._connector.link
            self._commits.send(link if link is not None and link.machine.is_following else None)
        if self.is_alone and now_s >= self._ask_due_s:
            self._ask_due_s = now_s + _LOOK_FOR_MASTER_S
            self.outside.ask_again()
        self._refuse()

    @property
    def remark(self) -> str:
        """Where who wants to write has to go."""
        address = self.outside.master_address()
        return f"this broker is a slave; the master of its group is {address or 'not known here now'}"

    def status(self) -> MemberRole:
        """SLAVE while a master feeds this member."""
        return MemberRole.NONE if self.is_alone else MemberRole.SLAVE

    def why_not_ready(self) -> str:
        """Why clients should go elsewhere; empty: they need not."""
        return "follows nobody" if self.is_alone else ""

    def _lag_bytes(self) -> int:
        return max(0, self.master_written - self._store.written.offset)

    def report(self) -> Mapping[str, object]:
        """How far this slave is behind its master, and what it does not take."""
        refused = {"refusedByMaster": self.refused} if self.refused else {}
        skipped = {"skippedTables": sorted(self.skipped)} if self.skipped else {}
        return {"lagBytes": self._lag_bytes(), **refused, **skipped}

    def metrics(self) -> RoleMetrics:
        """The link to the master."""
        epoch = None if self.is_alone else self.epoch
        return RoleMetrics(epoch, connected={"0": not self.is_alone}, lag_bytes={"0": self._lag_bytes()})

    def _refuse(self) -> None:
        remark = self.remark
        if GATE_SLAVE not in self._gate.reasons or remark != self._remark:
            self._remark = remark
            self._gate.reopen(GATE_SLAVE)
            self._gate.shut(GATE_SLAVE, Refusal(ResponseCode.SYSTEM_BUSY, remark))


def _planned(why: str, error: StoreError | None) -> None:
    if error is not None:
        log.error("%s, which could not be written down: %s", why, error)
