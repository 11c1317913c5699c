"""The state of a local cluster: from every member, every register and every process.

It is for people and programs; no decision depends on it.  For a member that does not answer within a second only the
state of its process is shown.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gantry.clock import Clock
from gantry.errors import GantryError
from gantry.failover.asking import AskedMembers
from gantry.local import processes
from gantry.local.cuts import OUTSIDE, Cuts
from gantry.local.folder import ClusterFile, Folder
from gantry.local.layout import COORDINATOR, NAMES, Layout, Who
from gantry.replication.haproof import Keys
from gantry.replication.hastate import MemberState
from gantry.replication.members import format_set
from gantry.replication.record import RegisterRecord
from gantry.replication.registerfile import FileRegister
from gantry.store.disk import RealDisk


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """The state of one member."""

    who: Who
    pid: int | None
    is_paused: bool
    is_cut: bool  # it cannot be reached from outside
    is_partly_cut: bool
    is_kept_down: bool
    state: MemberState | None

    @property
    def process(self) -> str:
        """The state of the process: running, paused, cut off, partly cut off, down, or kept down."""
        if self.pid is None:
            return "kept down" if self.is_kept_down else "down"
        if self.is_paused:
            return "paused"
        return "cut off" if self.is_cut else "partly cut off" if self.is_partly_cut else "running"


@dataclass(frozen=True, slots=True)
class Survey:
    """The whole cluster at about one moment."""

    layout: Layout
    members: tuple[MemberStatus, ...]
    registers: tuple[RegisterRecord | None, ...]  # by group
    names_pid: int | None
    coordinator_pid: int | None
    cuts: Cuts = Cuts()  # noqa: RUF009  a value

    def master(self, group: int) -> MemberStatus | None:
        """Return the member that the register names, if its own state agrees and it takes writes; otherwise None."""
        record = self.registers[group]
        for each in self.members:
            if each.who.group == group and each.state is not None and record is not None:
                if record.holder == each.state.me and each.state.is_writable:
                    return each
        return None

    @property
    def is_served(self) -> bool:
        """Whether every group has a master that takes writes."""
        return all(self.master(group) is not None for group in range(self.layout.groups))


class Surveyor:
    """Asks members and registers, repeatedly, in one loop; call close() at the end."""

    def __init__(self, folder: Folder, layout: Layout, clock: Clock) -> None:
        self._folder = folder
        self._layout = layout
        keys = Keys(folder.secret_file.read_bytes().strip())
        self._asked = [self._group(group, keys, clock) for group in range(layout.groups)]
        paths = [f"{folder.registers}/{Who(group, 0).group_name}.json" for group in range(layout.groups)]
        self._registers = [FileRegister(path, RealDisk()) for path in paths]

    def _group(self, group: int, keys: Keys, clock: Clock) -> AskedMembers:
        layout = self._layout

        def address(ordinal: int) -> str:
            return f"{layout.address(Who(group, ordinal))}:{layout.ports.ha_api}"

        return AskedMembers("", Who(group, 0).group_name, address, keys, clock)

    async def look(self, state: ClusterFile) -> Survey:
        """Ask all members at the same time; takes about a second at most."""
        running = processes.find(self._layout.uid)
        members = await asyncio.gather(*(self._member(who, state, running) for who in self._layout.members()))
        registers = [await self._record(group) for group in range(self._layout.groups)]
        pids = running.get(NAMES), running.get(COORDINATOR)
        return Survey(self._layout, tuple(members), tuple(registers), *pids, state.cuts)

    async def hand_over(self, target: Who, within_s: float) -> str:
        """Ask the group's master to hand over to this member. Return an empty text when done, else the reason."""
        record = await self._record(target.group)
        if record is None or record.holder is None:
            return f"{target.group_name} has no master now"
        asked, master = self._asked[target.group], record.holder.member.ordinal
        done = await asked.hand_over(master, target.ordinal, within_s)
        return "" if done else asked.why.get(master, "no answer")

    async def close(self) -> None:
        for asked in self._asked:
            await asked.close()

    async def _member(self, who: Who, state: ClusterFile, running: dict[str, int]) -> MemberStatus:
        pid = running.get(who.name)
        is_paused = pid is not None and processes.is_stopped(pid)
        is_cut, is_partly_cut = state.cuts.is_apart(who.name, OUTSIDE), who.name in state.cuts.names
        said = None
        if pid is not None and not is_paused and not is_cut:
            said = await self._asked[who.group].state(who.ordinal)
        return MemberStatus(who, pid, is_paused, is_cut, is_partly_cut, who.name in state.down, said)

    async def _record(self, group: int) -> RegisterRecord | None:
        try:
            seen = await self._registers[group].read()
        except GantryError:
            return None
        return None if seen is None else seen.record


def rows(survey: Survey) -> list[dict[str, str | int | bool | None]]:
    """Return a row of a table for each member."""
    found = []
    for each in survey.members:
        record, state = survey.registers[each.who.group], each.state
        in_sync = None if record is None else each.who.ordinal in {member.ordinal for member in record.in_sync}
        found.append(
            {
                "member": each.who.name,
                "process": each.process,
                "role": None if state is None else state.role.value,
                "epoch": None if state is None else state.epoch,
                "in_sync": in_sync,
                "writable": None if state is None else state.is_writable,
                "confirmed": None if state is None else state.confirmed,
                "end": None if state is None else state.log_end,
                "pid": each.pid,
                "broker": f"{survey.layout.address(each.who)}:{survey.layout.ports.broker}",
            }
        )
    return found


def document(survey: Survey) -> dict[str, object]:
    """Return the whole state as a JSON object."""
    layout = survey.layout
    groups = []
    for group, record in enumerate(survey.registers):
        master = survey.master(group)
        groups.append(
            {
                "group": Who(group, 0).group_name,
                "phase": None if record is None else record.phase.value,
                "epoch": None if record is None else record.epoch,
                "holder": None if record is None or record.holder is None else str(record.holder),
                "inSync": "" if record is None else format_set(record.in_sync),
                "confirmFloor": None if record is None else record.confirm_floor,
                "writableMaster": None if master is None else master.who.ordinal,
            }
        )
    return {
        "nameserver": layout.name_server,
        "profile": layout.profile,
        "links": layout.links.value,
        "pids": {NAMES: survey.names_pid, COORDINATOR: survey.coordinator_pid},
        "cut": sorted([*survey.cuts.members, *map(str, survey.cuts.ways)]),
        "groups": groups,
        "members": [_member(survey, each) for each in survey.members],
    }


def _member(survey: Survey, each: MemberStatus) -> dict[str, object]:
    layout, state = survey.layout, each.state
    record = survey.registers[each.who.group]
    ports = layout.ports._asdict()
    ports.pop("names")
    address = layout.address(each.who)
    in_sync = [] if record is None else sorted(member.ordinal for member in record.in_sync)
    found: dict[str, object] = {
        "group": each.who.group_name,
        "ordinal": each.who.ordinal,
        "process": each.process,
        "pid": each.pid,
        "role": None if state is None else state.role.value,
        "epoch": None if state is None else state.epoch,
        "addresses": {name: f"{address}:{port}" for name, port in ports.items()},
        "inSync": in_sync,
        "isInSync": each.who.ordinal in in_sync,
    }
    if state is not None:
        marks = {"min": state.log_start, "confirmed": state.confirmed, "max": state.log_end}
        found |= {"promise": state.promise, "me": str(state.me), "writable": state.is_writable, "marks": marks}
    return found
