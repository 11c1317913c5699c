"""The demonstration with Spark: orders in transactions, a streaming job that is killed in the middle, and the account.

    1. a cluster of three brokers, SYNC_FLUSH (`gantry local up`), and a streaming job (`pipeline`): raw orders to
       Parquet, revenue per minute to SQLite
    2. the order service of broker/demo places orders: a row and a message, both or neither
    3. in the middle the job's driver gets SIGKILL, with its JVM; orders go on; it is started again on its checkpoints
    4. when everything has come through, everybody stops, and archive and revenue are compared with the ledger

Every order has to be archived once and counted once; the exit code is 1 otherwise.  Needs Java 17, which is looked for
first.  Everything lies in one folder, and everything ends within TOGETHER_WITHIN_S.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "broker/demo"))

from counted import Counted, closing_table, count  # noqa: E402
from programs import ASK, GANTRY, Program, Programs  # noqa: E402
from screen import Screen  # noqa: E402

JAVA = 17
REPLICAS = 3
PER_SECOND = 200.0
KILL_AT = 0.4  # share of the orders that are counted when the driver is killed
UP_WITHIN_S = 120.0
TOGETHER_WITHIN_S = 420.0
SPARK_PYTHON = ROOT / ".venv-spark/bin/python"


class Demonstration:
    """The story; `folder` keeps the cluster, the ledgers, the archive and what the programs said on stderr."""

    def __init__(self, folder: Path, orders: int, screen: Screen) -> None:
        self._folder = folder
        self._orders = orders
        self._screen = screen
        self._programs = Programs(folder)
        self._deadline = time.monotonic() + TOGETHER_WITHIN_S

    async def run(self) -> Counted:
        """Play it; the account comes back."""
        programs = self._programs
        await self._up()
        await programs.gantry("topic", "create", "Orders", "--queues", "8", "--namesrv", programs.namesrv)
        job = await self._start_job("job-1")
        self._screen.say("its first batch is empty, and takes the longest")
        await self._watch(job, job, lambda: "batch" in job.progress)
        flags = ("--orders", str(self._orders), "--per-second", str(PER_SECOND))
        service = await programs.script("order_service", "order-service-1", 1, *flags)
        self._screen.say("an order service places orders: a row in SQLite and a message, both or neither")
        await self._watch(service, job, lambda: job.progress.get("counted", 0) >= KILL_AT * self._orders)
        before = job.progress
        await job.end(signal.SIGKILL)
        self._screen.say(
            f"kill -9 {job.process.pid}: the driver is gone after batch {before['batch']}; orders pile up"
        )
        job = await self._start_job("job-2")
        await self._watch(service, job, lambda: service.progress.get("rows", 0) >= self._orders)
        while await programs.has_open_halves():
            self._show(service, job)
        await service.end(signal.SIGTERM)
        await self._watch(service, job, lambda: job.progress.get("counted", 0) >= self._orders)
        return await self._count(service, job)

    async def stop(self) -> None:
        """Whatever still runs ends."""
        await self._programs.stop()

    async def _up(self) -> None:
        flags = ["--dir", str(self._folder / "cluster"), "--replicas", str(REPLICAS), "--profile", "durable"]
        begun = time.monotonic()
        cluster = await self._programs.start("cluster", [*GANTRY, "local", "up", *flags, *ASK])
        line = await cluster.first_line(UP_WITHIN_S)
        if not line.startswith("ready nameserver="):
            raise SystemExit(f"the cluster did not start; see {self._folder}/cluster.log")
        cluster.reading = asyncio.create_task(cluster.follow())
        self._programs.namesrv = line.rpartition("=")[2]
        self._screen.say(f"{REPLICAS} brokers, one group, up after {time.monotonic() - begun:.2f} s: {line}")

    async def _start_job(self, name: str) -> Program:
        begun = time.monotonic()
        command = [str(SPARK_PYTHON), str(HERE / "pipeline.py"), "--master", "local[2,4]"]
        settings = ("spark.driver.memory=1g", "spark.sql.shuffle.partitions=2")
        confs = [part for setting in settings for part in ("--conf", setting)]
        flags = ["--namesrv", self._programs.namesrv, "--folder", str(self._folder)]
        job = await self._programs.start(name, [*command, *confs, *flags], apart=True)
        line = await job.first_line(UP_WITHIN_S)
        if line != "ready":
            raise SystemExit(f"the streaming job did not start; see {self._folder}/{name}.log")
        job.reading = asyncio.create_task(job.follow())
        took_s = time.monotonic() - begun
        self._screen.say(f"streaming job {job.process.pid}: orders to Parquet and revenue, up after {took_s:.1f} s")
        return job

    async def _watch(self, service: Program, job: Program, until: Callable[[], bool]) -> None:
        while not until():
            for program in (service, job):
                if program.process.returncode not in (None, 0):
                    raise SystemExit(f"{program.name} gave up; see {self._folder}/{program.name}.log")
            self._show(service, job)
            await asyncio.sleep(0.1)

    def _show(self, service: Program, job: Program) -> None:
        if time.monotonic() > self._deadline:
            raise SystemExit(f"not finished after {TOGETHER_WITHIN_S:.0f} s; the logs are in {self._folder}")
        counted = job.progress.get("counted", 0)
        self._screen.progress(self._orders, service.progress.get("rows", 0), counted, "orders counted")

    async def _count(self, service: Program, job: Program) -> Counted:
        """Compared when both queries have come through, or nothing more comes."""
        orders_csv = ROOT / "broker/demo/orders.csv"
        while True:
            reader = await self._programs.start(
                "archived", [str(SPARK_PYTHON), str(HERE / "archived.py"), str(self._folder / "archive")]
            )
            printed, _ = await reader.process.communicate()
            if reader.process.returncode:
                raise SystemExit(f"the archive cannot be read; see {self._folder}/archived.log")
            counted = count(self._folder, orders_csv, json.loads(printed))
            if counted.is_good or time.monotonic() > self._deadline:
                return counted
            self._show(service, job)
            await asyncio.sleep(1)


def java_fault() -> str:
    """Why Spark cannot run here; empty when it can."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which(f"{home}/bin/java" if home else "java")
    wanted = f"install it (Debian: openjdk-{JAVA}-jre-headless), or set JAVA_HOME"
    if program is None:
        return f"Spark needs Java {JAVA}, and there is none; {wanted}"
    said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < JAVA:
        found = said.partition("\n")[0] or "of no version"
        return f"Spark needs Java {JAVA} or later, {program} is {found}; {wanted}"
    return "" if SPARK_PYTHON.exists() else f"{SPARK_PYTHON} is missing; make spark-env"


def emptied(folder: Path) -> Path:
    """The folder, without what an earlier demonstration left in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder.resolve()


async def play(arguments: argparse.Namespace) -> int:
    """The story and the table."""
    screen = Screen(sys.stdout)
    screen.say("revenue goes to SQLite, written by the driver: no database server is needed here")
    story = Demonstration(emptied(arguments.folder), arguments.orders, screen)
    try:
        counted = await story.run()
    finally:
        await story.stop()
    screen.end()
    print(closing_table(counted, arguments.folder))
    return 0 if counted.is_good else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Orders through a streaming job whose driver is killed in the middle.")
    parser.add_argument("--orders", type=int, default=8_000)
    parser.add_argument("--folder", type=Path, default=Path("build/demo-spark"))
    fault = java_fault()
    if fault:
        print(fault, file=sys.stderr)
        sys.exit(2)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(asyncio.run(play(parser.parse_args())))
    except KeyboardInterrupt:
        sys.exit(130)
