"""The second act: three brokers of which each has every message, and the master is killed in the middle and stays away.

    1. a group of one master and two slaves, SYNC_FLUSH, with a name server and a coordinator (`gantry local up`)
    2. two packers, and an order service that places orders in transactions as in the first act
    3. in the middle the master gets kill -9 and is kept down: the coordinator seals the group and promotes a slave,
       which knows every acknowledged message, every open transaction and how far the packers are
    4. everybody stops, and the ledgers are compared; the outage is the longest time without an acknowledged order
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

from account import Account, Outage, longest_silence_ms, settle, strike
from programs import ASK, GANTRY, Program, Programs
from screen import Screen

REPLICAS = 3
PACKERS = 2
KILL_AT = 0.4  # share of the orders that are rows when the master is killed
PER_SECOND = 500.0
UP_WITHIN_S = 120.0
WITHIN_S = 90.0


class SecondAct:
    """The story; `folder` keeps the cluster, the ledgers and what the programs said on stderr."""

    def __init__(self, folder: Path, orders: int, screen: Screen) -> None:
        self._folder = folder
        self._orders = orders
        self._screen = screen
        self._programs = Programs(folder)
        self._cluster = str(folder / "cluster")

    async def run(self) -> tuple[Account, Outage]:
        """Play it; the account comes back, and what the group went through."""
        programs = self._programs
        await self._up()
        await programs.gantry("topic", "create", "Orders", "--queues", "8", "--namesrv", programs.namesrv)
        packers = [await programs.script("packer", f"packer-{number}", number) for number in range(1, PACKERS + 1)]
        flags = ("--orders", str(self._orders), "--per-second", str(PER_SECOND))
        service = await programs.script("order_service", "order-service-1", 1, *flags)
        before = await self._group()
        self._screen.say("an order service places orders; two packers take them")
        await self._watch(service, packers, lambda: self._rows(service) >= KILL_AT * self._orders)
        killed_ms = time.time_ns() // 1_000_000
        told = await programs.gantry("local", "kill", "broker-a", "--master", "--keep-down", "--dir", self._cluster)
        killed = told.split()[0]
        self._screen.say(f"kill -9: {killed}, the master of epoch {before['epoch']}, is gone and stays away")
        await self._watch(service, packers, lambda: self._rows(service) >= self._orders)
        await self._drain(service, packers)
        after = await self._group()
        leads = f"broker-a-{after['writableMaster']}"
        self._screen.say(f"{leads} leads in epoch {after['epoch']}; in sync: {after['inSync']}")
        await service.end(signal.SIGTERM)
        for packer in packers:
            await packer.end(signal.SIGTERM)
        away_ms = longest_silence_ms(self._folder, killed_ms)
        (self._folder / "outage.csv").write_text(f"{killed_ms},{killed_ms + away_ms}\n")
        epochs = int(str(before["epoch"])), int(str(after["epoch"]))
        return strike(self._folder), Outage(killed, leads, *epochs, away_ms)

    async def stop(self) -> None:
        """Whatever still runs ends."""
        await self._programs.stop()

    async def _up(self) -> None:
        flags = ["--dir", self._cluster, "--replicas", str(REPLICAS), "--profile", "durable"]
        patience = ["--failover-timers", "fast"]
        begun = time.monotonic()
        cluster = await self._programs.start("cluster", [*GANTRY, "local", "up", *flags, *patience, *ASK])
        line = await cluster.first_line(UP_WITHIN_S)
        if not line.startswith("ready nameserver="):
            raise self._programs.did_not_start("cluster")
        cluster.reading = asyncio.create_task(cluster.follow())
        self._programs.namesrv = line.rpartition("=")[2]
        took_s = time.monotonic() - begun
        self._screen.say(f"second act: {REPLICAS} brokers, one group, up after {took_s:.2f} s: {line}")

    async def _group(self) -> dict[str, object]:
        shown = await self._programs.gantry("local", "status", "--dir", self._cluster, "--output", "json")
        found: dict[str, object] = json.loads(shown)["groups"][0]
        return found

    async def _watch(self, service: Program, packers: list[Program], until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not until():
            if time.monotonic() > deadline:
                raise SystemExit(f"not finished after {WITHIN_S:.0f} s; the logs are in {self._folder}")
            if service.process.returncode is not None:
                raise SystemExit(f"{service.name} gave up; see {self._folder}/{service.name}.log")
            self._show(service, packers)
            await asyncio.sleep(0.1)

    async def _drain(self, service: Program, packers: list[Program]) -> None:
        """Until no half is open and every row's message was received, or nothing more comes."""
        deadline = time.monotonic() + WITHIN_S
        while (await self._programs.has_open_halves() or settle(self._folder).lost) and time.monotonic() < deadline:
            self._show(service, packers)
            await asyncio.sleep(0.5)

    def _show(self, service: Program, packers: list[Program]) -> None:
        received = sum(packer.progress.get("received", 0) for packer in packers)
        self._screen.progress(self._orders, self._rows(service), received)

    @staticmethod
    def _rows(service: Program) -> int:
        return service.progress.get("rows", 0)
