"""`gantry coordinator`: seals a group whose master has failed, and promotes another of its members.

It keeps no state and holds no lock: the register decides.  So several coordinators may watch the same groups, and each
may be killed at any time.  Each decision that differs from the one before is a line on stdout, for people or (--output
json) for programs.

    gantry coordinator --group broker-a --register file:/shared/broker-a.json --secret-file secret \\
        --members 10.0.0.1:9405,10.0.0.2:9405,10.0.0.3:9405

    gantry coordinator --config groups.yaml      several groups, the flags' names as keys:

        secret-file: /etc/gantry/secret
        groups:
          broker-a: {register: "file:/shared/a.json", members: ["10.0.0.1:9405", "10.0.0.2:9405", "10.0.0.3:9405"]}
          broker-b: {register: "file:/shared/b.json", members: [...]}

The members say the group's terms (role, minInSync, timers).  `--role`, `--min-in-sync` and `--failover-timers` can make
the coordinator wait longer, and never shorter.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime

from gantry.broker.registers import open_register
from gantry.broker.role.membership import KEY_LOOK_S, KeyFile, read_keys
from gantry.cli.logs import add_logs, start_logging
from gantry.cli.numbers import Whole
from gantry.cli.serve import serve
from gantry.cli.watched import WatchedGroups, plan_of_file, plan_of_flags
from gantry.clock import Clock, SystemClock
from gantry.failover.decide import Bootstrap, Decision, Force, Promote
from gantry.failover.watch import Watch
from gantry.local.processes import Gone
from gantry.replication.haproof import Keys
from gantry.replication.members import MEMBERS_MAX, format_set
from gantry.replication.register import Register
from gantry.replication.timers import TIMERS
from gantry.store.disk import RealDisk


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags: one group by flags, or several by a file."""
    parser.add_argument("--config", metavar="FILE", help="several groups, as YAML: the flags' names as keys")
    parser.add_argument("--group", metavar="NAME", help="the group's name, as its brokers have it")
    parser.add_argument("--register", metavar="WHERE", help="file:/PATH, or lease:NAMESPACE/NAME in a cluster")
    text = "of a Lease outside of a cluster: https://HOST:PORT, and files with a token and the authority's certificate"
    parser.add_argument("--register-server", metavar="URL", help=text)
    parser.add_argument("--register-token-file", metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument("--register-ca-file", metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument("--members", metavar="HOST:PORT,...", help="/ha/v1 of every member, by ordinal")
    parser.add_argument("--secret-file", metavar="FILE", help="what the group's brokers prove to know")
    parser.add_argument(
        "--role", choices=("SYNC_MASTER", "ASYNC_MASTER"), help="the group's policy (default: as the members say)"
    )
    parser.add_argument(
        "--min-in-sync",
        metavar="N",
        type=Whole(1, MEMBERS_MAX),
        help="the least that counts (default: as the members say)",
    )
    ordinal = Whole(0, MEMBERS_MAX - 1)
    parser.add_argument("--preferred", metavar="ORDINAL", type=ordinal, help="who leads among equals (default: 0)")
    parser.add_argument("--cluster-uid", metavar="UID", help="of a cluster of several groups (the register's)")
    parser.add_argument(
        "--failover-timers", choices=sorted(TIMERS), help="how patient it is at least (default: as the members say)"
    )
    parser.add_argument("--output", choices=("text", "json"), default="text", help="form of the lines (text)")
    add_logs(parser)


def run(arguments: argparse.Namespace) -> int:
    """Watch until asked to stop. Return the exit code."""
    start_logging(arguments)
    plan = plan_of_file(arguments.config) if arguments.config else plan_of_flags(vars(arguments))
    keys = read_keys(plan.secret_file)
    clock = SystemClock()
    line = json_line if arguments.output == "json" else text_line

    def make(end: Callable[[], None]) -> Watching:
        return Watching(plan, keys, clock, line, end)

    return serve(make, lambda _: f"coordinator={','.join(sorted(plan.groups))}", lambda server: server.failure)


class Watching:
    """Watches every group of the plan; when one watch fails the process ends."""

    def __init__(
        self,
        plan: WatchedGroups,
        keys: Keys,
        clock: Clock,
        line: Callable[[str, Decision, int], str],
        end: Callable[[], None],
    ) -> None:
        self.failure: str | None = None
        self._plan = plan
        self._keys = keys
        self._clock = clock
        self._line = line
        self._end = end
        self._tasks: list[asyncio.Task[None]] = []
        self._registers: list[Register] = []

    async def start(self) -> None:
        """Start to watch every group."""
        for name, (watched, register) in self._plan.groups.items():
            teller, gone = self._teller(name), self._gone(name, len(watched.addresses))
            opened = open_register(register, RealDisk())
            self._registers.append(opened)
            watch = Watch(watched, opened, self._keys, self._clock, teller, gone)
            task = asyncio.ensure_future(watch.run())
            task.add_done_callback(self._ended)
            self._tasks.append(task)
        looking = asyncio.ensure_future(self._look_at_keys())
        looking.add_done_callback(self._ended)
        self._tasks.append(looking)

    async def stop(self) -> None:
        """Stop watching; a write that is under way is waited for within its time-out."""
        for task in self._tasks:
            task.remove_done_callback(self._ended)
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for register in self._registers:
            await register.close()

    async def _look_at_keys(self) -> None:
        """Read the secret file regularly and take over a changed secret, as brokers do."""
        file = KeyFile(self._plan.secret_file, self._keys)
        while True:
            file.look()
            await asyncio.sleep(KEY_LOOK_S)

    def _teller(self, name: str) -> Callable[[Decision], None]:
        return lambda decision: print(self._line(name, decision, self._clock.now_ms()), flush=True)

    def _gone(self, name: str, replicas: int) -> Callable[[], frozenset[int]]:
        uid = self._plan.local_uid
        return Gone(uid, [f"{name}-{ordinal}" for ordinal in range(replicas)]).ordinals if uid else frozenset

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.failure = self.failure or f"{task.exception()!r}"
            self._end()


def text_line(group: str, decision: Decision, now_ms: int) -> str:
    """Return a line like `2026-11-21T09:30:00.125Z broker-a promote: 1.4097/2c41 leads, in sync 1.4097,2.8193`."""
    when = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f"{when} {group} {_word(decision)}: {_reason(decision)}"


def json_line(group: str, decision: Decision, now_ms: int) -> str:
    """Return a JSON object with time_ms, group, decision and reason."""
    return json.dumps({"time_ms": now_ms, "group": group, "decision": _word(decision), "reason": _reason(decision)})


def _word(decision: Decision) -> str:
    return type(decision).__name__.lower()


def _reason(decision: Decision) -> str:
    match decision:
        case Promote(chosen, equals):
            return f"{chosen} leads, in sync {format_set(equals)}"
        case Force(chosen, _):
            return f"{chosen} leads alone, by a person's word"
        case Bootstrap(stores):
            return f"a new group of {len(stores)} empty stores"
        case _:
            return decision.reason

