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

Every program runs as a process of its own, as it would in life.  The exit code is 1 when the account does not come out
even.  With --keep the broker stays, with commands to try.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from account import Account, database, settle
from screen import Screen, closing_table, things_to_try

HERE = Path(__file__).resolve().parent
GANTRY = [sys.executable, "-m", "gantry.cli.main"]
PACKERS = 2
# Which service dies where, and how many of its own orders it places before that, as a share of all.
DEATHS = (("after-row", 0.2, "its row is committed"), ("after-half", 0.2, "its half message is stored, its row is not"))
KILL_AT = 0.7  # share of the orders that are rows when the broker is killed
ASK = ["--set", "transactions.immunity_s=1", "--set", "transactions.check_interval_s=2"]
AWAY_S = 1.0
READY_WITHIN_S = 60.0
FINISH_WITHIN_S = 90.0
DRAIN_WITHIN_S = 90.0


class Program:
    """One process of the demonstration and the last line of JSON that it printed."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.process = process
        self.progress: dict[str, int] = {}
        self.reading: asyncio.Task[None] | None = None

    async def first_line(self, within_s: float) -> str:
        """What it says when it is ready."""
        assert self.process.stdout is not None
        return (await asyncio.wait_for(self.process.stdout.readline(), within_s)).decode().strip()

    async def follow(self) -> None:
        """Keep the newest progress until it ends."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.progress = json.loads(line)

    async def end(self, number: int) -> int:
        """Send a signal and wait; the exit code."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.process.wait()


class Demonstration:
    """The whole story; `folder` keeps the store, the ledgers and what the programs said on stderr."""

    def __init__(self, folder: Path, orders: int, screen: Screen) -> None:
        self.folder = folder
        self.orders = orders
        self.screen = screen
        self.ports = {"nameserver": "0", "broker": "0", "http": "0"}
        self.programs: list[Program] = []
        self.broker: Program | None = None

    @property
    def namesrv(self) -> str:
        """Where the name server listens."""
        return f"127.0.0.1:{self.ports['nameserver']}"

    async def run(self) -> Account:
        """Play it; the account comes back."""
        await self.start_broker()
        await self._gantry("topic", "create", "Orders", "--queues", "8", "--namesrv", self.namesrv)
        packers = [await self._start_script("packer", f"packer-{number}", number) for number in range(1, PACKERS + 1)]
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
        lines = "".join(f"{','.join(row)}\n" for row in database(self.folder))
        (self.folder / "database.csv").write_text(lines, encoding="utf-8")
        return settle(self.folder)

    async def start_broker(self) -> None:
        """Start it and wait for its `ready` line; the second time on the ports of the first."""
        flags = [f"--{name}-port={port}" for name, port in self.ports.items()]
        begun = time.monotonic()
        command = ["standalone", "--data", str(self.folder / "store"), "--bind", "127.0.0.1", "--flush", "SYNC_FLUSH"]
        self.broker = await self._start("broker", [*GANTRY, *command, "--vip-port=-2", *flags, *ASK])
        line = await self.broker.first_line(READY_WITHIN_S)
        if not line.startswith("ready "):
            raise SystemExit(f"the broker did not start; see {self.folder}/broker.log")
        pairs = dict(pair.split("=", 1) for pair in line.split()[1:])
        self.ports = {name: pairs[name].rpartition(":")[2] for name in self.ports}
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
        for program in self.programs:
            if program.reading is not None:
                program.reading.cancel()
            await program.end(signal.SIGTERM)

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
        while (await self._open() or settle(self.folder).lost) and time.monotonic() < deadline:
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

    async def _open(self) -> int:
        """How many halves have no outcome yet."""
        return len(json.loads(await self._gantry("tx", "ls", "--output", "json", "--namesrv", self.namesrv)))

    async def _start_service(self, number: int, *arguments: str) -> Program:
        name = f"order-service-{number}"
        service = await self._start_script("order_service", name, number, "--orders", str(self.orders), *arguments)
        self.screen.say(f"order service {number} places orders: a row in SQLite and a message, both or neither")
        return service

    async def _start_script(self, script: str, name: str, number: int, *arguments: str) -> Program:
        command = [sys.executable, str(HERE / f"{script}.py"), "--namesrv", self.namesrv, "--ledger", str(self.folder)]
        program = await self._start(name, [*command, "--number", str(number), *arguments])
        await program.first_line(READY_WITHIN_S)
        program.reading = asyncio.create_task(program.follow())
        return program

    async def _start(self, name: str, command: list[str]) -> Program:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=log
            )
        program = Program(name, process)
        self.programs.append(program)
        return program

    async def _gantry(self, *arguments: str) -> str:
        """What a command prints."""
        program = await self._start("commands", [*GANTRY, *arguments])
        printed, _ = await program.process.communicate()
        if program.process.returncode != 0:
            raise SystemExit(f"gantry {' '.join(arguments)} failed; see {self.folder}/commands.log")
        return printed.decode()


async def play(arguments: argparse.Namespace) -> int:
    """The story, the table, and with --keep an open door."""
    screen = Screen(sys.stdout)
    story = Demonstration(_emptied(arguments.folder), arguments.orders, screen)
    shown: Path = arguments.folder
    try:
        account = await story.run()
        if not arguments.keep:
            await story.stop()
        screen.end()
        print(closing_table(account, shown))
        if arguments.keep:
            assert story.broker is not None
            print(things_to_try(story.namesrv, story.ports["http"]))
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
    parser.add_argument("--folder", type=Path, default=Path("build/demo"))
    parser.add_argument("--keep", action="store_true", help="leave the broker running and say what to try")
    # Whoever ends the demonstration, by Ctrl-C or kill, ends its programs too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.exit(asyncio.run(play(parser.parse_args())))
    except KeyboardInterrupt:
        sys.exit(130)
