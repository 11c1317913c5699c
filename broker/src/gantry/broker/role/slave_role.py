"""The role of a slave: what it receives from its master, and what it does with it.

    a chunk             -> the log; the master's confirmed offset -> the confirmed mark, hence queues, index, held pulls
    a change            -> topics, groups, offsets; acknowledged when it is on the disk, and later chunks not before
                           topics and groups are
    our share moved     -> the link acknowledges
    the log must change -> the plan is put on the disk, and the broker starts again to carry it out
    a topic differs     -> the same, to build its queues again

Offsets that consumers commit here are sent to the master when there is one; until then they count here too.  Retention
follows the master: nothing that is still in its log is deleted.
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
from gantry.broker.role.role_metrics import RoleMetrics
from gantry.broker.role.saved_changes import SavedChanges
from gantry.broker.role.slave_feed import tail_sum
from gantry.broker.role.slave_tables import AppliedTables, take_over
from gantry.errors import Refusal, StoreError
from gantry.replication import member_files
from gantry.replication.epochs import EpochTable
from gantry.replication.handshake import Hello, Step, Welcome
from gantry.replication.hastate import MemberRole
from gantry.replication.link import Connector, SlaveLink
from gantry.replication.member_files import Plan, StoreIdentity
from gantry.store import reviving
from gantry.store.jobs import submit_or_refuse
from gantry.transport.tasks import essential
from gantry.wire.codes import ResponseCode

if TYPE_CHECKING:
    from gantry.broker.role.membership import Membership
    from gantry.broker.role.promise_writer import PromiseWriter
    from gantry.store.background import Done, Worker
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
class MemberFolder:
    """Where this slave's member files are, and the thread that writes them."""

    disk: Disk
    root: str
    housekeeper: Worker
    group: str


@dataclass(frozen=True, slots=True)
class SlaveHooks:
    """Functions of the broker.  master and master_address return HOST:PORT, for replication and for
    clients; empty: unknown.  ask_again asks the name servers, expect_news reads the register often for a while.
    """

    master: Callable[[], str]
    master_address: Callable[[], str]
    ask_again: Callable[[], None]
    restart: Callable[[str], None]
    expect_news: Callable[[], None]


class SlaveRole:
    """The role of a slave; implements `replication.link_ends.SlaveEnd`; loop thread only."""

    def __init__(
        self,
        store: Store,
        member: Membership,
        promise_writer: PromiseWriter,
        place: MemberFolder,
        tables: AppliedTables,
        gate: WriteGate,
        outside: SlaveHooks,
    ) -> None:
        self.master_written = 0
        # Whether the next start has to cut or replace the log, or build queues again; nothing is followed until then.
        self.is_reshaping = False
        self._store = store
        self._member = member
        self._promise_writer = promise_writer
        self._place = place
        self._tables = tables
        self._gate = gate
        self.outside = outside
        self._connector: Connector | None = None
        self._running: asyncio.Task[None] | None = None
        self._savings = (
            SavedChanges(tables.durably.caught_up, partial(self._tell, Connector.freed)),
            SavedChanges(tables.save_progress, partial(self._tell, Connector.kept)),
        )
        self._commits = ForwardedCommits(tables.offsets)
        self._master_log_start = store.reader.log_start
        self._commits_due_s = self._ask_due_s = 0.0
        self._remark = ""
        self.skipped: set[str] = set()  # names of the master's tables that this version does not know
        self._was_full = False  # whether the hello of the present link reported a full disk

    def wire(self, connector: Connector) -> None:
        """Connect the parts; nothing runs yet."""
        self._connector = connector
        self._commits.begin()
        self._store.retention.owe(lambda: self._master_log_start)
        self._store.share.listen(connector.held)
        self._refuse()

    @property
    def is_alone(self) -> bool:
        """Whether there is no link to a master."""
        return self._connector is None or not self._connector.is_following

    @property
    def refused(self) -> str:
        """Why the master refuses this member permanently; empty: it does not."""
        return "" if self._connector is None or not self.is_alone else self._connector.refused

    @property
    def epoch(self) -> int:
        """The epoch that is followed; 0: none."""
        link = self._connector.link if self._connector is not None else None
        return link.machine.epoch if link is not None else 0

    def start(self, fail: Callable[[str], None]) -> None:
        """Start to connect to the master; `fail` is called with the reason when the process has to end."""
        assert self._connector is not None
        self._running = essential(self._connector.run(), "following the master", fail)

    async def stop(self) -> None:
        """Tell the master that this slave stops, and end the tasks."""
        if self._connector is not None and self._connector.link is not None:
            self._connector.link.leave()
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})
        for saving in self._savings:
            await saving.stop()

    # Calls of the link

    def hello(self) -> tuple[Hello, int]:
        """Return this slave's hello, and the offset up to which it holds its log by its flush policy."""
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
        """Return HOST:PORT of the master's replication port; empty while it is not known."""
        return "" if self.is_reshaping else self.outside.master()

    def held(self) -> int:
        """Return the offset up to which it holds its log by its flush policy."""
        return self._store.share.offset

    def adopt(self, welcome: Welcome, done: Done) -> None:
        """Write the cluster's id and the epochs of the welcome to the disk, then call done."""
        if self._member.has_register:
            # An epoch is promised before anything is acknowledged in it.
            writer = self._promise_writer
            writer.promise(welcome.epoch, lambda error: done(error) if error else self._adopt(welcome, done))
        else:
            self._adopt(welcome, done)

    def _adopt(self, welcome: Welcome, done: Done) -> None:
        # Checked here, because a seal may have come while this epoch was promised.  The housekeeper runs jobs in order,
        # so after a promise no table of a lower epoch is written, which would hide this member's last epoch.
        refusal = self._refusal(welcome)
        if refusal is not None:
            done(refusal)
            return
        place = self._place
        identity = StoreIdentity(welcome.cluster_uid, self._member.identity.store_uid)

        def job() -> None:
            if identity != self._member.identity:
                member_files.save_identity(place.disk, place.root, identity)
            member_files.save_epochs(place.disk, place.root, welcome.epochs)

        def finished(error: StoreError | None) -> None:
            if error is None:
                self._member.identity, self._member.epochs = identity, welcome.epochs
                error = self._refusal(welcome)  # a seal may have come meanwhile, and nothing begins below it
            done(error)

        submit_or_refuse(place.housekeeper, job, finished)

    def _refusal(self, welcome: Welcome) -> StoreError | None:
        promised = self._member.promised
        if welcome.epoch >= promised:
            return None
        return StoreError(
            f"this member promised epoch {promised}, the master is in {welcome.epoch}; restart the master "
            "after it was sealed as well, or empty this slave's folder"
        )

    def ended(self) -> None:
        """Expect a new master, because the link ended."""
        self.outside.expect_news()

    def step_down(self, epoch: int) -> None:
        """Follow no master below this epoch, which is promised; tell the present one, if there is one."""
        if self._connector is not None and self._connector.link is not None:
            self._connector.link.end_for(epoch)

    def promise(self, epoch: int, done: Done) -> None:
        """Promise an epoch on the master's request, for a handover."""
        self._promise_writer.promise(epoch, done)
        self.outside.expect_news()

    def leave_lower(self, epoch: int) -> None:
        """End the link if it is of a lower epoch than this one, which has a master."""
        link = self._connector.link if self._connector is not None else None
        if link is not None and link.machine.is_following and link.machine.epoch < epoch:
            link.end(f"epoch {epoch} has begun")

    def cut_off(self, why: str) -> None:
        """End the present link, if there is one."""
        if self._connector is not None and self._connector.link is not None:
            self._connector.link.end(why)

    def hurry(self) -> None:
        """Connect to the master now."""
        if self._connector is not None:
            self._connector.hurry()

    def reshape(self, welcome: Welcome) -> None:
        """Plan the change of the log that the welcome asks for, and start again."""
        if self._refusal(welcome) is not None:
            return  # this member promised a higher epoch meanwhile
        mine = set(self._member.epochs.entries)
        kept = [one for one in welcome.epochs.entries if one in mine and one.start <= welcome.at]
        plan = Plan(welcome.step, welcome.at, EpochTable(tuple(kept) if welcome.step is Step.CUT else ()))
        why = f"the log has to {'be cut' if welcome.step is Step.CUT else 'begin'} at {welcome.at} to follow the master"
        self.plan(plan, why, partial(_planned, why))

    def plan(self, plan: Plan, why: str, done: Done) -> None:
        """Stop following, write the plan for the next start, and start again; then call `done`."""
        place = self._place
        self._start_again(partial(member_files.save_plan, place.disk, place.root, plan), why, done)

    def _start_again(self, job: Callable[[], None], why: str, done: Done) -> None:
        """Stop following, run the job that writes the plan of the next start, and start again."""
        self.is_reshaping = True
        self.cut_off(why)

        def planned(error: StoreError | None) -> None:
            if error is None:
                self.outside.restart(why)
            else:
                self.is_reshaping = False
            done(error)

        submit_or_refuse(self._place.housekeeper, job, planned)

    def append(self, start: int, records: memoryview) -> int:
        """Write records at `start`. Return the log's new end."""
        return self._store.append_raw(start, records)

    def marks(self, confirmed: int, log_start: int, written: int) -> None:
        """Note the confirmed offset, and where the master's log begins and ends."""
        self._master_log_start = log_start
        self.master_written = max(written, self._store.written.offset)
        self._store.confirmed.advance(min(confirmed, self._store.written.offset))

    def apply(self, number: int, changes: list[object]) -> None:
        """Apply changes of metadata; ValueError when they are invalid."""
        tables = self._tables
        self._commits.gather()  # first, or older offsets of the master would replace new commits here
        revivals, unknown = take_over(changes, self._store, tables, self._commits.away)
        self._name_skipped(unknown)
        tables.topics.file.save_if_changed()
        tables.groups.file.save_if_changed()
        tables.save_decisions()
        if revivals:
            self._revive(revivals)
            return
        for saving in self._savings:
            saving.note(None if self._connector is None else self._connector.link, number)

    def _name_skipped(self, unknown: set[str]) -> None:
        for table in sorted(unknown - self.skipped)[: _SKIPPED_MAX - len(self.skipped)]:
            self.skipped.add(table)
            log.warning("changes of the table %r are skipped; the master's version is newer, update this slave", table)

    def _revive(self, revivals: Mapping[str, Revival]) -> None:
        """Make the next start build queues again, and start again; the master repeats the other changes."""
        place, names = self._place, ", ".join(sorted(revivals)[:_NAMES_SAID])
        why = f"{len(revivals)} topics, {names} among them, were deleted here otherwise than in the group: their "
        why += "queues have to be built again from the log"
        self._start_again(partial(reviving.note, place.disk, place.root, revivals), why, partial(_planned, why))

    def _tell(self, report: Callable[[Connector, int], None], link: SlaveLink | None, number: int) -> None:
        if self._connector is not None and link is not None and self._connector.link is link:
            report(self._connector, number)

    # Periodic work

    def tick(self) -> None:
        """Apply time limits, send commits, and look for a master; called ten times a second."""
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
        """The text of refused writes, with the master's address."""
        address = self.outside.master_address()
        return f"this broker is a slave; the master of its group is {address or 'not known here now'}"

    def status(self) -> MemberRole:
        """Return SLAVE while there is a link to a master, else NONE."""
        return MemberRole.NONE if self.is_alone else MemberRole.SLAVE

    def why_not_ready(self) -> str:
        """Return why clients should use another member; empty: they need not."""
        return "follows no master" if self.is_alone else ""

    def _lag_bytes(self) -> int:
        return max(0, self.master_written - self._store.written.offset)

    def report(self) -> Mapping[str, object]:
        """Return the lag behind the master, why it refuses this member, and the tables that are skipped."""
        refused = {"refusedByMaster": self.refused} if self.refused else {}
        skipped = {"skippedTables": sorted(self.skipped)} if self.skipped else {}
        return {"lagBytes": self._lag_bytes(), **refused, **skipped}

    def metrics(self) -> RoleMetrics:
        """Return the epoch, and the link to the master with its lag."""
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
