"""The process of `gantry local up`: one supervisor for a folder, and a display of the cluster.

On a terminal a table of the members is drawn again each second; elsewhere each change of a group is printed as a line.
The display runs in its own task and does not delay the supervisor.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TextIO

from gantry.cli.output import table
from gantry.clock import Clock
from gantry.errors import ConfigError, GantryError
from gantry.local import processes, survey
from gantry.local.cuts import Cuts
from gantry.local.folder import Folder
from gantry.local.layout import Layout, Who
from gantry.local.supervisor import Supervisor
from gantry.local.survey import Survey, Surveyor

_SERVED_WITHIN_S = 90.0
_EVERY_S = 1.0
_SOON_S = 0.1
_LINES_MAX = 8
_CLEAR = "\x1b[H\x1b[2J"


class LocalServer:
    """Call start() and stop() once each; `failure`: why it had to end."""

    def __init__(self, folder: Folder, layout: Layout, clock: Clock, end: Callable[[], None]) -> None:
        self.failure: str | None = None
        self._folder = folder
        self._layout = layout
        self._clock = clock
        self._end = end
        self._is_live = sys.stdout.isatty()
        self._happened: list[str] = []
        self._supervisor = Supervisor(folder, layout, clock, self._tell, self._fail)
        self._surveyor = Surveyor(folder, layout, clock)
        self._showing: asyncio.Task[None] | None = None
        self._lock: TextIO | None = None

    async def start(self) -> None:
        """Lock the folder, start everything, and wait until every group has a master that takes writes."""
        self._lock = self._alone()
        me = processes.known(os.getpid())
        self._folder.change(lambda state: replace(state, down=frozenset(), cuts=Cuts(), supervisor=str(me)))
        await self._supervisor.start()
        await self._until_served()
        self._showing = asyncio.ensure_future(self._show())

    async def stop(self) -> None:
        """Stop everything; stored data stays."""
        if self._showing is not None:
            self._showing.cancel()
        await self._surveyor.close()
        if self._lock is None:
            return  # another supervisor runs this cluster
        await self._supervisor.stop()
        self._folder.change(lambda state: replace(state, supervisor=""))
        self._lock.close()

    def _alone(self) -> TextIO:
        lock = (self._folder.path / "supervisor.lock").open("a")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise ConfigError(f"{self._folder.path}: its cluster is up already") from error
        left = processes.find(self._layout.uid)
        if left:
            lock.close()
            raise ConfigError(
                f"processes of an earlier start are left: {', '.join(sorted(left))}; "
                f"gantry local down --dir {self._folder.path} ends them"
            )
        return lock

    async def _until_served(self) -> None:
        end_s = self._clock.monotonic() + _SERVED_WITHIN_S
        while True:
            found = await self._surveyor.look(self._folder.load())
            if found.is_served:
                return
            if self._clock.monotonic() > end_s:
                raise GantryError(f"not every group has a master after {_SERVED_WITHIN_S:g} s: {_summary(found)}")
            await asyncio.sleep(_SOON_S)

    def _tell(self, text: str) -> None:
        self._happened = [*self._happened, text][-_LINES_MAX:]
        if not self._is_live:
            print(text, flush=True)

    def _fail(self, why: str) -> None:
        self.failure = self.failure or why
        self._end()

    async def _show(self) -> None:
        told: dict[int, str] = {}
        while True:
            await asyncio.sleep(_EVERY_S)
            try:
                found = await self._surveyor.look(self._folder.load())
            except GantryError as error:
                self._tell(str(error))
                continue
            if self._is_live:
                print(_CLEAR + _page(found, self._happened), flush=True)
                continue
            for group in range(self._layout.groups):
                text = _group(found, group)
                if text != told.get(group):
                    told[group] = text
                    self._tell(text)


def _page(found: Survey, happened: list[str]) -> str:
    layout = found.layout
    head = f"nameserver={layout.name_server}  profile {layout.profile}, links: {layout.links.value}; Ctrl-C ends it"
    return "\n".join([head, "", *table(survey.rows(found)), "", *happened])


def _group(found: Survey, group: int) -> str:
    record, master = found.registers[group], found.master(group)
    name = Who(group, 0).group_name
    if record is None:
        return f"{name} has no register"
    leads = f"{master.who.name} leads" if master is not None else "no master takes writes"
    ordinals = ",".join(str(member.ordinal) for member in sorted(record.in_sync))
    return f"{name} epoch {record.epoch}: {leads}, in sync {ordinals or 'none'}"


def _summary(found: Survey) -> str:
    return "; ".join(_group(found, group) for group in range(found.layout.groups))
