"""How long clients stall when a master is killed and started again: ours, and Java's as it comes.

A name server, a master and a slave (static pair, ASYNC_MASTER).  Each client has a producer that sends one message
after the other, trying again for as long as it takes, and a consumer.  The master is killed, is away for a while, and
is started again: a stall is counted from the moment at which the new master says that it is ready to the next message
that is acknowledged, or consumed.  What our consumer gets counts only if it was sent after the return.

Java's clients ask for routes every 30 s: each absence ends at another moment of their round.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from servers import free_port, running

from gantry.client.blocking import BlockingProducer, Message
from gantry.client.consumer import Consumer, ReceivedMessage
from gantry.client.producer import Producer, ProducerSettings
from gantry.errors import GantryError

if TYPE_CHECKING:
    from scenarios import Bench, Row

_TOPIC = "steady"
_AWAY_S = (1.0, 4.0, 9.0, 14.0, 23.0)
_WITHIN_S = 90.0  # of a stall
_PATIENT = ProducerSettings(timeout_s=120.0)
_READY_S = 60.0


class _Gaps:
    """When a client last had an answer, and the first one since a moment."""

    def __init__(self) -> None:
        self._since = 0.0
        self._first: float | None = None

    def begin(self) -> None:
        self._since, self._first = time.time(), None

    def happened(self, sent_at: float) -> None:
        if self._since and self._first is None and sent_at >= self._since:
            self._first = time.time()

    def stall_s(self) -> float | None:
        return None if self._first is None else self._first - self._since


class _Ours:
    """Our clients, in a loop and a thread of their own."""

    def __init__(self, nameserver: str) -> None:
        self.gaps = {name: _Gaps() for name in ("Producer", "BlockingProducer", "Consumer")}
        self._nameserver = nameserver
        self._loop = asyncio.new_event_loop()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._run_loop, self._block)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(10.0)

    def _run_loop(self) -> None:
        self._loop.run_until_complete(self._play())

    async def _play(self) -> None:
        async def heard(message: ReceivedMessage) -> None:
            self.gaps["Consumer"].happened(float(message.body))

        async with (
            Consumer("steady-ours", nameserver=self._nameserver, subscription={_TOPIC: "*"}, listener=heard),
            Producer("steady-ours-producer", nameserver=self._nameserver, settings=_PATIENT) as producer,
        ):
            while not self._over.is_set():
                begun = time.time()
                try:
                    await producer.send(Message(_TOPIC, b"%.3f" % begun))
                except GantryError:
                    continue
                self.gaps["Producer"].happened(time.time())
                await asyncio.sleep(0.01)

    def _block(self) -> None:
        with BlockingProducer("steady-blocking", nameserver=self._nameserver, settings=_PATIENT) as producer:
            while not self._over.is_set():
                try:
                    producer.send(Message("steady-blocking", b"x"))
                except GantryError:
                    continue
                self.gaps["BlockingProducer"].happened(time.time())
                time.sleep(0.01)


class _Pair:
    """A name server, and a master with its slave: processes with ports and folders that stay."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._secret = folder / "secret"
        self._secret.write_text("a secret for figures\n")
        self._ports = {0: (free_port(), free_port()), 1: (free_port(), free_port())}
        self._members: dict[int, subprocess.Popen[str]] = {}
        self._name_port = free_port()

    @property
    def nameserver(self) -> str:
        return f"127.0.0.1:{self._name_port}"

    @contextmanager
    def up(self) -> Iterator[None]:
        command = ["nameserver", "--nameserver-port", str(self._name_port), "--bind", "127.0.0.1", "--http-port", "-1"]
        with running([_gantry(), *command]) as names:
            _wait_ready(names)
            try:
                self.start(0)
                self.start(1)
                yield
            finally:
                for process in self._members.values():
                    process.kill()
                    process.wait(10)

    def start(self, broker_id: int) -> None:
        """Returns when it says that it is ready."""
        port, ha_port = self._ports[broker_id]
        env = {
            "GANTRY_NAME": "broker-a",
            "GANTRY_ID": str(broker_id),
            "GANTRY_ROLE": "SLAVE" if broker_id else "ASYNC_MASTER",
            "GANTRY_NAME_SERVERS": self.nameserver,
            "GANTRY_STORE_ROOT": str(self._folder / f"member-{broker_id}"),
            "GANTRY_NETWORK_BIND": "127.0.0.1",
            "GANTRY_NETWORK_ADVERTISE": "127.0.0.1",
            "GANTRY_NETWORK_PORT": str(port),
            "GANTRY_NETWORK_VIP_PORT": "-2",
            "GANTRY_NETWORK_HTTP_PORT": "-1",
            "GANTRY_NETWORK_HA_API_PORT": "-1",
            "GANTRY_NETWORK_HA_PORT": str(ha_port),
            "GANTRY_REPLICATION_SECRET_FILE": str(self._secret),
            "GANTRY_REPLICATION_MASTER": f"127.0.0.1:{self._ports[0][1]}",
        }
        process = subprocess.Popen(
            [_gantry(), "broker"], stdout=subprocess.PIPE, text=True, env={**os.environ, **env}, start_new_session=True
        )
        self._members[broker_id] = process
        _wait_ready(process)

    def kill(self) -> None:
        self._members[0].send_signal(signal.SIGKILL)
        self._members[0].wait(10)


def _gantry() -> str:
    return str(Path(sys.executable).with_name("gantry"))


def _wait_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith("ready "):
        raise SystemExit(f"gantry did not start: {line!r}")


class _Java:
    """Java's clients, as the interop level starts them; None where there is no Java."""

    def __init__(self, version: str, home: Path, nameserver: str) -> None:
        sys.path.insert(0, str(Path(__file__).parent.parent))
        from interop.clients import CLIENTS

        self._driver = CLIENTS[f"java-{version}"].start(home, nameserver)
        name = f"steady-{version.replace('.', '-')}"
        self._driver.call("steady", topic=name, group=name)

    def stalls(self, since: float, ready_at: float) -> dict[str, float]:
        """Seconds from the return of the master to the end of the gap that it ended, which may be a moment before it
        said so; gaps that ended before `since` are of the time before.
        """
        self._driver.settle(0.1)
        found: dict[str, float] = {}
        for event in self._driver.events:
            end_s = float(str(event.get("end_ms", 0))) / 1000
            if event.get("event") == "gap" and end_s >= since:
                found.setdefault(str(event["what"]), max(0.0, end_s - ready_at))
        return found

    def quit(self) -> None:
        self._driver.quit()


def restarts(bench: Bench) -> list[Row]:
    """Five absences of different lengths; the longest and the middle stall of each client."""
    pair = _Pair(bench.folder / "restarts")
    stalls: dict[str, list[float]] = {}
    with pair.up(), tempfile.TemporaryDirectory() as home:
        ours = _Ours(pair.nameserver)
        ours.start()
        java = {version: _Java(version, Path(home) / version, pair.nameserver) for version in ("4.9.7", "5.x")}
        time.sleep(5.0)  # everybody has a route and has sent
        for away_s in _AWAY_S:
            pair.kill()
            time.sleep(away_s)
            since = time.time()
            pair.start(0)
            ready_at = time.time()
            for gap in ours.gaps.values():
                gap.begin()
            names = [*ours.gaps, *(f"{version} {what}" for version in java for what in ("send", "receive"))]
            found: dict[str, float] = {}
            while len(found) < len(names) and time.time() < ready_at + _WITHIN_S:
                time.sleep(0.05)
                found = {name: gap for name, one in ours.gaps.items() if (gap := one.stall_s()) is not None}
                for version, driver in java.items():
                    found |= {f"{version} {what}": gap for what, gap in driver.stalls(since, ready_at).items()}
            for name in names:
                stalls.setdefault(name, []).append(found.get(name, _WITHIN_S))
            time.sleep(3.0)
        for driver in java.values():
            driver.quit()
        ours.stop()
    return [_row(name, values) for name, values in stalls.items()]


def _row(name: str, values: list[float]) -> Row:
    is_ours = name[0].isalpha()
    label = name if is_ours else f"Java {name.replace('send', 'producer').replace('receive', 'push consumer')}"
    ordered = sorted(values)
    return {
        "figure": f"stall after a master's return: {label}",
        "p50_ms": round(1000 * ordered[len(ordered) // 2]),
        "max_ms": round(1000 * ordered[-1]),
        "target": "< 2000 ms" if is_ours else "what it is",
    }
