"""The demonstration: real orders, two order services and the broker killed in the middle, and the account of it all.

    1. a broker with its name server in one process, on an empty folder, SYNC_FLUSH; it asks about open halves after
       one second, every two seconds
    2. two packers share the orders: one consumer group
    3. order service 1 places orders: a row in SQLite and a message, in one transaction; it is killed between its
       local commit and END_TRANSACTION: the row is there, and the broker does not know
    4. order service 2 goes on from the same database, and is killed after a half message, before its local commit
    5. order service 3 places the rest, and answers what the broker asks about the orders of the two; in the middle
       the broker itself gets kill -9 and is started again on the same folder a second later
    6. everybody stops, and the ledgers are compared: database rows = delivered messages

The second act (`second`) does it with three brokers, of which the master is killed and stays away.

Every program runs as a process of its own, as it would in life.  The exit code is 1 when the account does not come out
even.  With --keep the first act's broker stays, with commands to try, and the second act waits until it is ended.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from account import Account, settle, strike
from programs import ASK, GANTRY, READY_WITHIN_S, Program, Programs, free_port
from screen import Screen, closing_table, second_table, things_to_try
from second import SecondAct

PACKERS = 2
# Which service dies where, and how many of its own orders it places before that, as a share of all.
DEATHS = (("after-row", 0.2, "its row is committed"), ("after-half", 0.2, "its half message is stored, its row is not"))
KILL_AT = 0.7  # share of the orders that are rows when the broker is killed
AWAY_S = 1.0
FINISH_WITHIN_S = 90.0
DRAIN_WITHIN_S = 90.0


class Demonstration:
    """The whole story; `folder` keeps the store, the ledgers and what the programs said on stderr."""

    def __init__(self, folder: Path, orders: int, screen: Screen) -> None:
        self.folder = folder
        self.programs = Programs(folder)
        self.orders = orders
        self.screen = screen
        self.ports = {name: free_port() for name in ("nameserver", "broker", "http")}
        self.broker: Program | None = None

    async def run(self) -> Account:
        """Play it; the account comes back."""
        await self.start_broker()
        programs = self.programs
        await programs.gantry("topic", "create", "Orders", "--queues", "8", "--namesrv", programs.namesrv)
        packers = [await programs.script("packer", f"packer-{number}", number) for number in range(1, PACKERS + 1)]
        self.screen.say(f"{PACKERS} packers wait for orders: consumer group `packing`")
        for nth, (where, share, what) in enumerate(DEATHS, 1):
            service = await self._start_service(nth, "--die", where, "--at", str(int(share * self.orders)))
            await self._watch(service, packers, until=self._is_dead(service))
            self.screen.say(
                f"kill -9 {service.process.pid}: order service {nth} is gone in the middle of an order, {what}"
            )
        service = await self._start_service(len(DEATHS) + 1)
        await self._watch(service, packers, until=lambda: self._rows(service) >= KILL_AT * self.orders)
        await self.kill_and_restart()
        await self._watch(service, packers, until=lambda: self._rows(service) >= self.orders)
        await self._drain(service, packers)
        await service.end(signal.SIGTERM)
        for packer in packers:
            await packer.end(signal.SIGTERM)
        return strike(self.folder)

    async def start_broker(self) -> None:
        """Start it and wait for its `ready` line; the second time on the same ports."""
        flags = [f"--{name}-port={port}" for name, port in self.ports.items()]
        begun = time.monotonic()
        command = ["standalone", "--data", str(self.folder / "store"), "--bind", "127.0.0.1", "--flush", "SYNC_FLUSH"]
        self.broker = await self.programs.start("broker", [*GANTRY, *command, "--vip-port=-2", *flags, *ASK])
        line = await self.broker.first_line(READY_WITHIN_S)
        if not line.startswith("ready "):
            raise self.programs.did_not_start("broker")
        pairs = dict(pair.split("=", 1) for pair in line.split()[1:])
        self.programs.namesrv = pairs["nameserver"]
        took_s = time.monotonic() - begun
        self.screen.say(f"broker is up after {took_s:.2f} s: {line}")

    async def kill_and_restart(self) -> None:
        """kill -9, a second of nothing, and the same folder again."""
        assert self.broker is not None
        killed_ms = time.time_ns() // 1_000_000
        await self.broker.end(signal.SIGKILL)
        self.screen.say(f"kill -9 {self.broker.process.pid}: the broker is gone, orders pile up in order service 3")
        await asyncio.sleep(AWAY_S)
        await self.start_broker()
        ready_ms = time.time_ns() // 1_000_000
        (self.folder / "outage.csv").write_text(f"{killed_ms},{ready_ms}\n")

    async def stop(self) -> None:
        """Whatever still runs ends."""
        await self.programs.stop()

    async def _watch(self, service: Program, packers: list[Program], until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + FINISH_WITHIN_S
        while not until():
            if time.monotonic() > deadline:
                raise SystemExit(f"not finished after {FINISH_WITHIN_S:.0f} s; the logs are in {self.folder}")
            if service.process.returncode is not None:
                raise SystemExit(f"{service.name} gave up; see {self.folder}/{service.name}.log")
            self._show(service, packers)
            await asyncio.sleep(0.1)
        self._show(service, packers)

    async def _drain(self, service: Program, packers: list[Program]) -> None:
        """Until no half is open and every row's message was received, or nothing more comes."""
        deadline = time.monotonic() + DRAIN_WITHIN_S
        while (await self.programs.has_open_halves() or settle(self.folder).lost) and time.monotonic() < deadline:
            self._show(service, packers)
            await asyncio.sleep(0.5)
        self._show(service, packers)

    def _show(self, service: Program, packers: list[Program]) -> None:
        received = sum(packer.progress.get("received", 0) for packer in packers)
        self.screen.progress(self.orders, self._rows(service), received)

    @staticmethod
    def _rows(service: Program) -> int:
        return service.progress.get("rows", 0)

    @staticmethod
    def _is_dead(service: Program) -> Callable[[], bool]:
        return lambda: service.process.returncode == -signal.SIGKILL

    async def _start_service(self, number: int, *arguments: str) -> Program:
        name = f"order-service-{number}"
        service = await self.programs.script("order_service", name, number, "--orders", str(self.orders), *arguments)
        self.screen.say(f"order service {number} places orders: a row in SQLite and a message, both or neither")
        return service


async def play(arguments: argparse.Namespace) -> int:
    """Both acts, or one of them: the first."""
    folder: Path = arguments.folder
    _emptied(folder)
    screen = Screen(sys.stdout)
    code = await first(folder, arguments, screen) if arguments.act != "second" else 0
    if arguments.act == "first" or code:
        return code
    second = SecondAct(_emptied(folder / "second"), arguments.second_orders, screen := Screen(sys.stdout))
    try:
        account, outage = await second.run()
    finally:
        await second.stop()
    screen.end()
    print(second_table(account, outage, folder / "second"))
    return 0 if account.is_good else 1


async def first(shown: Path, arguments: argparse.Namespace, screen: Screen) -> int:
    """The story, the table, and with --keep an open door."""
    story = Demonstration(shown, arguments.orders, screen)
    try:
        account = await story.run()
        if not arguments.keep:
            await story.stop()
        screen.end()
        print(closing_table(account, shown), flush=True)
        if arguments.keep:
            assert story.broker is not None
            print(things_to_try(story.programs.namesrv, story.ports["http"]))
            await story.broker.process.wait()
    finally:
        await story.stop()
    return 0 if account.is_good else 1


def _emptied(folder: Path) -> Path:
    """The folder, without what an earlier demonstration left in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder.resolve()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Orders through services and a broker that are killed in the middle.")
    parser.add_argument("--orders", type=int, default=12_000)
    parser.add_argument("--second-orders", type=int, default=5_000, help="of the second act")
    parser.add_argument("--act", choices=("first", "second", "both"), default="both")
    parser.add_argument("--folder", type=Path, default=Path("build/demo"))
    parser.add_argument("--keep", action="store_true", help="leave the broker running and say what to try")
    # Anyone who ends the demonstration, by Ctrl-C or kill, ends its programs too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.exit(asyncio.run(play(parser.parse_args())))
    except KeyboardInterrupt:
        sys.exit(130)
