"""The example's processes, started, killed and asked: a shop, members of two groups, the resend process.

Every process is one of ours, killed by its id at the end.  `Caller` puts orders until each has an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp

from gantry.guarantee.databases import opened
from gantry.local import processes
from testkit.patience import HANG_S
from testkit.ports import free_port
from testkit.sources import ROOT

EXAMPLE = ROOT / "broker" / "examples" / "orders"
GROUPS = ("packing", "billing")
_AGAIN_S = 0.2


@dataclass
class Orders:
    """`with Orders(...) as orders:`; processes by name, each started again after it was killed."""

    folder: Path
    database: str
    nameserver: str
    redis: str = ""
    commands: dict[str, Sequence[str]] = field(default_factory=dict)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.port = free_port()
        done = subprocess.run(
            [sys.executable, EXAMPLE / "setup.py", *GROUPS], env=self.environment(), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        self.commands["shop"] = [sys.executable, str(EXAMPLE / "shop.py"), str(self.port)]
        resend = ["guarantee", "resend", "--every", "1", "--backoff", "3", "--resends-max", "50", "--database"]
        self.commands["resend"] = [
            *processes.GANTRY, *resend, self.database, "--namesrv", self.nameserver,
        ]  # fmt: skip

    def __enter__(self) -> Orders:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait(HANG_S)

    def environment(self) -> Mapping[str, str]:
        given = {"DATABASE": self.database, "NAMESRV_ADDR": self.nameserver, "RESEND_AFTER_S": "5"}
        return {**os.environ, **given, **({"REDIS": self.redis} if self.redis else {})}

    def members(self, group: str, count: int) -> None:
        """Let a group have so many members, once they are started."""
        for number in range(count):
            self.commands[f"{group}-{number}"] = [sys.executable, str(EXAMPLE / "account.py"), group]

    def start(self, *names: str) -> None:
        for name in names or self.commands:
            with (self.folder / f"{name}.log").open("ab") as log:
                self.running[name] = subprocess.Popen(
                    self.commands[name], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment()
                )

    def kill(self, name: str) -> None:
        """kill -9."""
        self.running[name].kill()
        self.running[name].wait(HANG_S)

    def ask(self, text: str) -> list[tuple[Any, ...]]:
        _, connect = opened(self.database)
        with closing(connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(text)
            return [tuple(row) for row in cursor.fetchall()]

    def open_deliveries(self) -> int:
        return int(self.ask("SELECT COUNT(*) FROM guarantee_delivery WHERE state = 'open'")[0][0])

    def accounts(self) -> dict[str, tuple[int, int]]:
        return {name: (int(orders), int(cents)) for name, orders, cents in self.ask("SELECT * FROM account")}

    def logs(self) -> str:
        return "\n".join(f"--- {path.name}\n{path.read_text()[-1500:]}" for path in sorted(self.folder.glob("*.log")))

    async def all_put(self, count: int, at_once: int = 8) -> None:
        """Put the orders 1 to `count`, each again until it has an answer that is final."""
        numbers = iter(range(1, count + 1))
        limit = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(timeout=limit) as session:

            async def put() -> None:
                for number in numbers:
                    await self._put(session, number)

            await asyncio.gather(*(put() for _ in range(at_once)))

    async def _put(self, session: aiohttp.ClientSession, number: int) -> None:
        while True:
            if await self._is_put(session, number):
                return
            await asyncio.sleep(_AGAIN_S)

    async def _is_put(self, session: aiohttp.ClientSession, number: int) -> bool:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            body = json.dumps({"cents": cents(number)})
            async with session.put(f"http://127.0.0.1:{self.port}/orders/{number}", data=body) as answer:
                assert answer.status in (200, 201, 503), await answer.text()
                return answer.status != 503
        return False

    async def killing(self, seed: int, every_s: float, more: Sequence[Callable[[], None]] = ()) -> None:
        """Kill something every so often and start it again, until cancelled; `more` are faults of other things."""
        chance = random.Random(seed)
        while True:
            await asyncio.sleep(every_s * chance.uniform(0.5, 1.5))
            name = chance.choice([*self.running, *("" for _ in more)])
            if name:
                self.kill(name)
                self.start(name)
            else:
                chance.choice(more)()


def cents(number: int) -> int:
    """What an order costs."""
    return 1 + number * 7919 % 1000


def exact(count: int) -> tuple[int, int]:
    """What an account has after so many orders."""
    return count, sum(map(cents, range(1, count + 1)))
