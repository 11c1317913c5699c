"""`gantry local`: a name server, groups of members and a coordinator as processes on this machine, to try failover.

    gantry local up --dir DIR --groups 2 --replicas 3 --profile durable      runs on; a live table on a terminal
    gantry local status --dir DIR
    gantry local kill --dir DIR broker-a --master --keep-down
    gantry local pause|resume|partition|heal|start --dir DIR broker-a/1
    gantry local partition --dir DIR --from broker-a/0 --to broker-a/1 broker-a/2 [--both-ways]
    gantry local handover --dir DIR broker-a/1
    gantry local down --dir DIR                                              also after a supervisor that was killed

Commands affect only processes of that folder's cluster, never others (`local.processes`).
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gantry.broker.settings.profiles import PROFILES
from gantry.cli.localserver import LocalServer
from gantry.cli.logs import add_logs, start_logging
from gantry.cli.newlayout import layout_for
from gantry.cli.numbers import Whole
from gantry.cli.output import show, show_json
from gantry.cli.serve import serve
from gantry.clock import SystemClock
from gantry.errors import ConfigError, GantryError
from gantry.local import namespaces, processes, survey
from gantry.local.cuts import OUTSIDE, Cuts
from gantry.local.folder import ClusterFile, Folder
from gantry.local.layout import (
    COORDINATOR,
    GROUPS_MAX,
    NAMES,
    REPLICAS_MAX,
    WIRES,
    Layout,
    Links,
    Who,
    who_is,
)
from gantry.local.supervisor import ENDS_WITHIN_S, end_all
from gantry.local.wires import Wires
from gantry.replication.registerfile import FileRegister
from gantry.replication.timers import TIMERS
from gantry.store.disk import RealDisk

HAS_MANY_WORDS = False
_HANDOVER_WITHIN_S = 5.0
_CARRIED_OUT_WITHIN_S = 10.0
_LOOK_S = 0.05
_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGTERM, "pause": signal.SIGSTOP, "resume": signal.SIGCONT}
_DONE = {"kill": "killed", "stop": "is told to stop", "pause": "paused", "resume": "goes on", "start": "is to run"}


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    up = commands.add_parser("up", help="make a cluster, or start the one that is there, and keep it running")
    up.add_argument("--groups", type=Whole(1, GROUPS_MAX), metavar="N", help="groups of brokers (1)")
    up.add_argument("--replicas", type=Whole(2, REPLICAS_MAX), metavar="N", help="members of each group (3)")
    up.add_argument("--profile", choices=sorted(PROFILES), help="when a message is acknowledged (durable)")
    up.add_argument("--failover-timers", choices=sorted(TIMERS), help="how patient it is (default)")
    links = ("auto", *Links)
    up.add_argument("--links", choices=links, help="how members reach each other, so that they can be cut off (auto)")
    anything = "any key of the brokers' configuration, such as pull.count_max=64"
    up.add_argument("--set", metavar="KEY=VALUE", action="append", default=None, help=anything)
    add_logs(up)
    status = commands.add_parser("status", help="every member and its process")
    status.add_argument("--output", choices=("table", "json"), default="table", help="how to print (%(default)s)")
    for name, text in (
        ("kill", "kill -9; the supervisor starts it again, unless --keep-down"),
        ("stop", "SIGTERM: an end in order; the supervisor starts it again, unless --keep-down"),
        ("pause", "SIGSTOP: alive and silent, like a machine whose disk hangs"),
        ("resume", "let it go on"),
        ("partition", "cut it off from everybody: members, clients, name server, register; or lose what some send"),
        ("heal", "nothing is cut any more at these, or anywhere, or on these ways"),
        ("start", "start what is kept down"),
    ):
        each = commands.add_parser(name, help=text)
        each.add_argument("who", nargs="*", metavar="MEMBER", help="broker-a/1, or a group with --master")
        each.add_argument("--master", action="store_true", help="who leads now, of this group or of the only one")
        if name in ("partition", "heal"):
            ends = "members, or `outside`: clients, name server, coordinator and register"
            each.add_argument("--from", dest="starts", nargs="+", metavar="END", help=f"what these send: {ends}")
            each.add_argument("--to", dest="ends", nargs="+", metavar="END", help="to these")
            each.add_argument("--both-ways", action="store_true", help="and the other way round")
        if name in ("kill", "stop"):
            each.add_argument("--keep-down", action="store_true", help="not started again before gantry local start")
    handover = commands.add_parser("handover", help="have this member lead its group: planned, without a loss of time")
    handover.add_argument("member", metavar="MEMBER", help="broker-a/1; it has to be in sync")
    commands.add_parser("down", help="end every process of the cluster; what is stored stays")
    add_logs(commands.add_parser("wires", help="(started by up) pass connections on between members"))
    for each in commands.choices.values():
        each.add_argument("--dir", metavar="DIR", type=Path, default=Path("./cluster"), help="its folder (%(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand. Return the exit code."""
    folder = Folder(arguments.dir)
    commands: dict[str, Callable[[], int]] = {
        "up": lambda: _up(arguments, folder),
        "wires": lambda: _wires(arguments, folder),
        "status": lambda: asyncio.run(_status(folder, arguments.output)),
        "partition": lambda: _cut(folder, arguments, is_cut=True),
        "heal": lambda: _cut(folder, arguments, is_cut=False),
        "down": lambda: asyncio.run(_down(folder)),
        "handover": lambda: asyncio.run(_hand_over(folder, arguments.member)),
    }
    command: str = arguments.command
    return commands[command]() if command in commands else _signal(folder, arguments)


def _up(arguments: argparse.Namespace, folder: Folder) -> int:
    start_logging(arguments)
    layout = layout_for(folder, arguments)
    if PROFILES[layout.profile].min_in_sync >= layout.replicas:
        print(f"gantry: {layout.replicas} members: one loss stops writes; three go on", file=sys.stderr)

    def make(stop: Callable[[], None]) -> LocalServer:
        return LocalServer(folder, layout, SystemClock(), stop)

    return serve(make, lambda _: f"nameserver={layout.name_server}", lambda server: server.failure)


def _wires(arguments: argparse.Namespace, folder: Folder) -> int:
    start_logging(arguments)
    return serve(lambda _: Wires(folder), lambda _: "wires", lambda wires: wires.failure)


async def _status(folder: Folder, output: str) -> int:
    state = folder.load()
    surveyor = survey.Surveyor(folder, state.layout, SystemClock())
    try:
        found = await surveyor.look(state)
    finally:
        await surveyor.close()
    if output == "json":
        show_json(survey.document(found))
    else:
        show(survey.rows(found), output)
    return 0


async def _hand_over(folder: Folder, member: str) -> int:
    state = folder.load()
    target = who_is(state.layout, member)
    surveyor = survey.Surveyor(folder, state.layout, SystemClock())
    try:
        refused = await surveyor.hand_over(target, _HANDOVER_WITHIN_S)
    finally:
        await surveyor.close()
    if refused:
        raise GantryError(f"{target.group_name} was not handed over: {refused}")
    print(f"{target.name} leads {target.group_name}")
    return 0


def _signal(folder: Folder, arguments: argparse.Namespace) -> int:
    state = folder.load()
    layout, command = state.layout, str(arguments.command)
    others = () if layout.links is not Links.PROXY else (WIRES,)
    names = _names(folder, state, arguments, (COORDINATOR, NAMES, *others))
    if command == "start":
        folder.let_run(*names)
        supervisor = processes.parse_known(state.supervisor)
        if supervisor is None or not supervisor.is_alive:
            raise GantryError(f"the supervisor is gone; start it: gantry local up --dir {folder.path}")
    elif command in ("kill", "stop") and arguments.keep_down:
        folder.keep_down(*names)
    for name in names:
        if command in _SIGNALS and not processes.send(layout.uid, name, _SIGNALS[command]):
            raise GantryError(f"{name} does not run")
        print(f"{name} {_DONE[command]}")
    return 0


def _cut(folder: Folder, arguments: argparse.Namespace, is_cut: bool) -> int:
    state = folder.load()
    layout, before = state.layout, state.cuts
    if layout.links is Links.DIRECT:
        raise ConfigError("nothing can be cut in a cluster that was made with --links direct; make one without it")
    if arguments.starts or arguments.ends:
        wanted = _ways(layout, before, arguments, is_cut)
    elif is_cut or arguments.who or arguments.master:
        names = _names(folder, state, arguments, ())
        wanted = before.cut_off(names) if is_cut else before.healed(names)
    else:
        wanted = Cuts()
    folder.set_cuts(wanted)
    if layout.links is Links.NAMESPACES:
        namespaces.set_cuts(layout, wanted)
    else:
        _until_carried_out(folder, wanted)
    gone, back = (wanted, before) if is_cut else (before, wanted)
    changed = [*sorted(gone.members - back.members), *sorted(map(str, gone.ways - back.ways))]
    print("\n".join(f"{name} {'is cut off' if is_cut else 'is back'}" for name in changed) or "nothing changed")
    return 0


def _ways(layout: Layout, before: Cuts, arguments: argparse.Namespace, is_cut: bool) -> Cuts:
    """Return the cuts after the ways of --from and --to are cut, or opened. ConfigError for missing or extra names."""
    if not arguments.starts or not arguments.ends or arguments.who or arguments.master:
        raise ConfigError("--from and --to go together, without other names")
    starts, ends = (
        [OUTSIDE if text == OUTSIDE else who_is(layout, text).name for text in texts]
        for texts in (arguments.starts, arguments.ends)
    )
    change = Cuts.cut if is_cut else Cuts.opened
    wanted = change(before, starts, ends)
    return change(wanted, ends, starts) if arguments.both_ways else wanted


def _until_carried_out(folder: Folder, wanted: Cuts) -> None:
    end_s = time.monotonic() + _CARRIED_OUT_WITHIN_S
    while folder.are_cut() != wanted:
        if time.monotonic() > end_s:
            raise GantryError(f"the process {WIRES} did not apply it in time; check that it runs: gantry local status")
        time.sleep(0.01)


async def _down(folder: Folder) -> int:
    state = folder.load()
    layout = state.layout
    supervisor = processes.parse_known(state.supervisor)
    if supervisor is not None and processes.send_known(supervisor, signal.SIGTERM):
        for _ in range(round(4 * ENDS_WITHIN_S / _LOOK_S)):
            if not supervisor.is_alive:
                break
            await asyncio.sleep(_LOOK_S)
        if supervisor.is_alive:
            raise GantryError(f"the supervisor, process {supervisor.pid}, does not end; end it and try again")
    left = processes.find(layout.uid)
    await end_all(folder, layout)
    if layout.links is Links.NAMESPACES:
        namespaces.remove(layout)
    folder.change(lambda found: replace(found, supervisor="", cuts=Cuts(), down=frozenset()))
    print(f"down{f'; ended {len(left)} processes that were left' if left else ''}")
    return 0


def _names(folder: Folder, state: ClusterFile, arguments: argparse.Namespace, others: Sequence[str]) -> list[str]:
    """Return the names of the processes that the command line means; ConfigError when there are none such."""
    layout = state.layout
    if arguments.master:
        groups = [Who(group, 0).group_name for group in range(layout.groups)]
        wanted = arguments.who or (groups if layout.groups == 1 else [])
        unknown = sorted(set(wanted) - set(groups))
        if not wanted or unknown:
            raise ConfigError(f"--master wants a group: one of {', '.join(groups)}")
        return [asyncio.run(_master(folder, groups.index(group), group)) for group in wanted]
    if not arguments.who:
        raise ConfigError("name a member, such as broker-a/1, or a group with --master")
    return [text if text in others else who_is(layout, text).name for text in arguments.who]


async def _master(folder: Folder, group: int, name: str) -> str:
    seen = await FileRegister(f"{folder.registers}/{name}.json", RealDisk()).read()
    if seen is None or seen.record.holder is None:
        raise GantryError(f"{name} has no master now")
    return Who(group, seen.record.holder.member.ordinal).name
