"""The programs of the demonstration: each a process of its own, as it would be in life, with its stderr in a file.

A program says `ready` in its first line and its progress in lines of JSON after that.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
GANTRY = [sys.executable, "-m", "gantry.cli.main"]
READY_WITHIN_S = 60.0
# What every broker of the demonstration is told: ask about open halves after one second, every two seconds.
ASK = ("--set", "transactions.immunity_s=1", "--set", "transactions.check_interval_s=2")
_PORTS = range(10_000, 32_000)  # below those that systems give to outgoing connections
_PORT_TRIES = 100


def free_port() -> str:
    """Return a port that is free, and that no outgoing connection is given while a broker is away from it."""
    for port in random.SystemRandom().sample(_PORTS, _PORT_TRIES):
        with socket.socket() as looking:
            try:
                looking.bind(("127.0.0.1", port))
            except OSError:
                continue
            return str(port)
    raise SystemExit(f"no free port among {_PORT_TRIES} from {_PORTS.start} to {_PORTS.stop - 1}; end other servers")


class Program:
    """One process of the demonstration and the last line of JSON that it printed."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, apart: bool = False) -> None:
        self.name = name
        self._apart = apart  # with children that have to go with it
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
            if line.startswith(b"{"):
                self.progress = json.loads(line)

    async def end(self, number: int) -> int:
        """Send a signal and wait; the exit code."""
        if self.process.returncode is None:
            if self._apart:
                os.killpg(self.process.pid, number)
            else:
                self.process.send_signal(number)
        return await self.process.wait()


class Programs:
    """All that run for one act; `folder` keeps their ledgers and what they said on stderr."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.namesrv = ""  # where the name server listens, when there is one
        self._all: list[Program] = []

    async def start(self, name: str, command: Sequence[str], apart: bool = False) -> Program:
        """Any program; `apart` in a process group of its own, which signals go to."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=apart,
            )
        program = Program(name, process, apart)
        self._all.append(program)
        return program

    async def script(self, script: str, name: str, number: int, *arguments: str) -> Program:
        """An order service or a packer, ready."""
        command = [sys.executable, str(HERE / f"{script}.py"), "--namesrv", self.namesrv, "--ledger", str(self.folder)]
        program = await self.start(name, [*command, "--number", str(number), *arguments])
        await program.first_line(READY_WITHIN_S)
        program.reading = asyncio.create_task(program.follow())
        return program

    async def gantry(self, *arguments: str) -> str:
        """What a command prints; it must work."""
        printed = await self._gantry(*arguments)
        if printed is None:
            raise SystemExit(f"gantry {' '.join(arguments)} failed; see {self.folder}/commands.log")
        return printed

    async def has_open_halves(self) -> bool:
        """Whether transactions have no outcome yet, or nobody is there who could say."""
        printed = await self._gantry("tx", "ls", "--output", "json", "--namesrv", self.namesrv)
        return printed is None or bool(json.loads(printed))

    async def _gantry(self, *arguments: str) -> str | None:
        program = await self.start("commands", [*GANTRY, *arguments])
        printed, _ = await program.process.communicate()
        return printed.decode() if program.process.returncode == 0 else None

    def did_not_start(self, name: str) -> SystemExit:
        """Return the error that says which program it was, where its log is, and the log's last line."""
        path = self.folder / f"{name}.log"
        said = path.read_text(errors="replace").strip().splitlines()
        return SystemExit(f"the {name} did not start; see {path}; it ends with: {said[-1] if said else 'nothing'}")

    async def stop(self) -> None:
        """Whatever still runs ends, last begun first."""
        for program in reversed(self._all):
            if program.reading is not None:
                program.reading.cancel()
            await program.end(signal.SIGTERM)
