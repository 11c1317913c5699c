"""The supervisor of a local cluster: starts its processes, restarts one that died, and stops all in order.


    start    1. networks  2. wires  3. name server  4. members and coordinator, all at once  5. every group has a master
    stop     1. the registers are marked as stopping, so that no master hands over, and no set shrinks
             2. the coordinator, so that it promotes no member that is about to end
             3. masters, so that their parked messages are confirmed  4. the other members, all at once  5. the rest

A process that ends is started again after a pause, unless `local.json` keeps it down.  The pause doubles from a fifth
of a second to fifteen seconds, and is short again after half a minute of running.  Output goes to files, not to pipes:
so processes continue when their supervisor is killed, and `gantry local down` ends them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Sequence

from gantry.clock import Clock
from gantry.errors import GantryError
from gantry.local import namespaces, processes
from gantry.local.cuts import Cuts
from gantry.local.folder import Folder
from gantry.local.layout import (
    COORDINATOR,
    NAMES,
    WIRES,
    Layout,
    Links,
    Who,
    coordinator_config,
    member_config,
)
from gantry.replication.registerfile import FileRegister
from gantry.store.disk import RealDisk

log = logging.getLogger(__name__)
READY_WITHIN_S = 90.0
ENDS_WITHIN_S = 30.0
_LOOK_S = 0.05
_PAUSE_S, _PAUSE_MAX_S, _SETTLED_S = 0.2, 15.0, 30.0


class Supervisor:
    """Call start() and stop() once each, in one loop. `tell` is called with news for people, `fail` with the reason
    when it cannot go on.
    """

    def __init__(
        self,
        folder: Folder,
        layout: Layout,
        clock: Clock,
        tell: Callable[[str], None],
        fail: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._layout = layout
        self._clock = clock
        self._tell = tell
        self._fail = fail
        self._children: dict[str, asyncio.subprocess.Process] = {}
        self._watching: dict[str, asyncio.Task[None]] = {}

    async def start(self) -> None:
        """Start everything and wait until it is ready. GantryError when a process ends or takes too long."""
        layout, folder = self._layout, self._folder
        if layout.links is Links.NAMESPACES:
            namespaces.make(layout)
            namespaces.set_cuts(layout, Cuts())  # removes cuts of an earlier start
        folder.tear_down(False)
        self._folder.carried_out.unlink(missing_ok=True)
        for who in layout.members():
            folder.reach(who, True)
            config = member_config(layout, who, str(folder.member(who)), str(folder.secret_file))
            folder.write(folder.member(who) / "broker.yaml", _tree(config))
        watched = coordinator_config(layout, str(folder.registers), str(folder.secret_file))
        folder.write(folder.path / "coordinator.yaml", watched)
        if layout.links is Links.PROXY:
            await self._begin(WIRES)
        await self._begin(NAMES)
        names = [*(who.name for who in layout.members()), COORDINATOR]
        # Each process is ready or has failed when this returns, so none starts while the others are being stopped.
        for failure in await asyncio.gather(*(self._begin(name) for name in names), return_exceptions=True):
            if isinstance(failure, BaseException):
                raise failure

    async def stop(self) -> None:
        """Stop everything in the module's order; a process that does not end in time is killed."""
        for task in self._watching.values():
            task.cancel()
        await asyncio.gather(*self._watching.values(), return_exceptions=True)
        await end_all(self._folder, self._layout)
        if self._layout.links is Links.NAMESPACES:
            namespaces.remove(self._layout)

    async def _begin(self, name: str) -> None:
        """Start a process, wait until it is ready, and watch it from then on."""
        await self._spawn(name)
        await self._until_ready(name)
        self._watching[name] = asyncio.ensure_future(self._watch(name))
        self._watching[name].add_done_callback(self._unwatched)

    def _unwatched(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._fail(f"a process cannot be supervised any more: {task.exception()!r}")

    async def _spawn(self, name: str) -> None:
        layout, folder = self._layout, self._folder
        with folder.out(name).open("wb") as out, folder.log(name).open("ab") as errors:
            self._children[name] = await asyncio.create_subprocess_exec(
                *self._command(name),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                env=processes.marked(layout.uid, name),
                start_new_session=True,
            )

    def _command(self, name: str) -> Sequence[str]:
        layout, folder = self._layout, self._folder
        if name == NAMES:
            ports = ["--nameserver-port", str(layout.ports.names), "--http-port", "-1"]
            return [*processes.GANTRY, "nameserver", "--bind", layout.host, *ports]
        if name == WIRES:
            return [*processes.GANTRY, "local", "wires", "--dir", str(folder.path)]
        if name == COORDINATOR:
            return [*processes.GANTRY, "coordinator", "--config", str(folder.path / "coordinator.yaml")]
        who = next(each for each in layout.members() if each.name == name)
        inside = namespaces.inside(layout, who) if layout.links is Links.NAMESPACES else []
        return [*inside, *processes.GANTRY, "broker", "--config", str(folder.member(who) / "broker.yaml")]

    async def _until_ready(self, name: str) -> None:
        """Wait until the process has printed its `ready` line; GantryError when it ends or takes too long."""
        end_s = self._clock.monotonic() + READY_WITHIN_S
        child = self._children[name]
        while not self._folder.out(name).read_bytes().startswith(b"ready "):
            if child.returncode is not None:
                raise GantryError(f"{name} ended with {child.returncode}; {last_line(self._folder, name)}")
            if self._clock.monotonic() > end_s:
                raise GantryError(f"{name} is not ready after {READY_WITHIN_S:g} s; see {self._folder.log(name)}")
            await asyncio.sleep(_LOOK_S)

    async def _watch(self, name: str) -> None:
        """Start the process again whenever it ends, until cancelled."""
        pause_s = _PAUSE_S
        while True:
            begun_s = self._clock.monotonic()
            code = await self._children[name].wait()
            if name in self._folder.load().down:
                self._tell(f"{name} is down, and kept down")
                await self._until_wanted(name)
                pause_s = 0.0
            else:
                pause_s = _PAUSE_S if self._clock.monotonic() - begun_s > _SETTLED_S else pause_s
                self._tell(f"{name} ended with {code}; started again in {pause_s:g} s")
            await asyncio.sleep(pause_s)
            pause_s = min(max(2 * pause_s, _PAUSE_S), _PAUSE_MAX_S)
            await self._spawn(name)
            self._tell(f"{name} is started again, pid {self._children[name].pid}")


    async def _until_wanted(self, name: str) -> None:
        while True:
            await asyncio.sleep(_PAUSE_S)
            if name not in self._folder.load().down:
                return


async def end_all(folder: Folder, layout: Layout) -> None:
    """Stop every process of the cluster in the module's order; in-sync sets do not change."""
    masters = await _masters(folder, layout)
    others = [who.name for who in layout.members() if who.name not in masters]
    folder.tear_down(True)
    for names in ([COORDINATOR], masters, others, [NAMES, WIRES]):
        await end(layout, names)
    folder.tear_down(False)


async def _masters(folder: Folder, layout: Layout) -> list[str]:
    """Return the names of the masters by the registers; a group whose register cannot be read has none."""
    found = []
    for group in range(layout.groups):
        with contextlib.suppress(GantryError):
            seen = await FileRegister(f"{folder.registers}/{Who(group, 0).group_name}.json", RealDisk()).read()
            if seen is not None and seen.record.holder is not None:
                found.append(Who(group, seen.record.holder.member.ordinal).name)
    return found


async def end(layout: Layout, names: Sequence[str]) -> None:
    """Send SIGTERM to these processes, also to paused ones, and SIGKILL to those that do not end in time."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for name in names:
            # In this order: a paused process receives the signal when it continues.
            processes.send(layout.uid, name, number)
            processes.send(layout.uid, name, signal.SIGCONT)
        for _ in range(round(ENDS_WITHIN_S / _LOOK_S)):
            if not processes.find(layout.uid).keys() & set(names):
                return
            await asyncio.sleep(_LOOK_S)


def last_line(folder: Folder, name: str) -> str:
    """Return the last line that a process logged, to explain why it ended."""
    with contextlib.suppress(OSError, IndexError), folder.log(name).open("rb") as file:
        file.seek(-min(4096, os.fstat(file.fileno()).st_size), os.SEEK_END)
        return file.read().decode("utf-8", "replace").strip().splitlines()[-1][:400]
    return f"see {folder.log(name)}"


def _tree(config: dict[str, object]) -> dict[str, object]:
    """Return the configuration with dotted keys turned into sections."""
    tree: dict[str, object] = {}
    for key, value in config.items():
        section, dot, rest = key.partition(".")
        if not dot:
            tree[key] = value
            continue
        inner = tree.setdefault(section, {})
        assert isinstance(inner, dict), f"{key} beside {section}"
        inner[rest] = value
    return tree
