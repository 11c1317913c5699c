"""A local cluster of real processes: `gantry local up`, what happens to it, and producers with a ledger each.

    with Cluster(folder, "--replicas", "3") as cluster:
        with Producing(cluster.name_server, "orders", folder / "ledger") as producing:
            cluster.do("kill", "broker-a", "--master", "--keep-down")

A ledger has what its producer was told SEND_OK for, and when; `gantry local down` ends whatever is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType

from gantry.cli.main import main
from gantry.clock import SystemClock
from gantry.local import processes
from gantry.local.folder import Folder
from gantry.local.layout import Who
from gantry.local.survey import Survey, Surveyor
from gantry.replication.record import Phase, RegisterRecord
from testkit.pairplay import Member, until
from testkit.patience import HANG_S
from testkit.process import _environment
from testkit.rawclient import RawClient
from testkit.sources import ROOT

START_S = 180.0
PATIENCE_S = 180.0
# A reader asks for so many bytes at once; messages of these tests are short.
_GET_MAX_OFFSET = 30
Place = tuple[int, int]  # queue, offset
_SMALL = ("--set", "store.disk_used_refuse=1.0", "--set", "store.disk_used_clean=1.0")


class Cluster:
    """See the module."""

    def __init__(self, path: Path, *flags: str, environment: Mapping[str, str] | None = None) -> None:
        self.folder = Folder(path)
        self._environment = {**_environment({}), **(environment or {})}
        path.mkdir(parents=True, exist_ok=True)
        self._command = [*processes.GANTRY, "local", "up", "--dir", str(path), *_SMALL, *flags]
        self._up: Member | None = None
        self.name_server = ""

    def __enter__(self) -> Cluster:
        self._up = Member(self.folder.path / "up", self._command, self._environment)
        try:
            self._up.wait_ready(START_S)
        except BaseException:
            self.close()
            raise
        self.name_server = "{}:{}".format(*self._up.addresses["nameserver"])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End everything; nothing of it is left."""
        if self._up is None:
            return
        if self.folder.exists:
            self.do("down")
        self._up.close()
        if self.folder.exists:
            assert not processes.find(self.folder.load().layout.uid)

    @property
    def supervisor(self) -> subprocess.Popen[bytes]:
        """The process that keeps the others running."""
        assert self._up is not None
        return self._up.popen

    def do(self, command: str, *arguments: str) -> None:
        """`gantry local COMMAND`, which has to succeed."""
        code = main(["local", command, "--dir", str(self.folder.path), *arguments])
        assert code == 0, f"gantry local {command} {' '.join(arguments)} ended with {code}\n{self.story()}"

    def record(self, group: int = 0) -> RegisterRecord:
        """The register of a group."""
        found = self.survey().registers[group]
        assert found is not None, "the register cannot be read"
        return found

    def survey(self) -> Survey:
        """How everybody does."""

        async def look() -> Survey:
            state = self.folder.load()
            surveyor = Surveyor(self.folder, state.layout, SystemClock())
            try:
                return await surveyor.look(state)
            finally:
                await surveyor.close()

        return asyncio.run(look())

    def until_served(self, above: int, group: int = 0) -> RegisterRecord:
        """Until somebody leads, takes writes and listens in an epoch above this one; the register then."""
        found: list[RegisterRecord] = []

        def is_served() -> bool:
            seen = self.survey()
            record, master = seen.registers[group], seen.master(group)
            if record is None or record.phase is not Phase.ACTIVE or master is None:
                return False
            found.append(record)
            # Its side door tells who leads before its port is open again.
            return record.epoch > above and _listens(seen.layout.address(master.who), seen.layout.ports.broker)

        self.until(is_served, f"somebody leads above epoch {above}")
        return found[-1]

    def until_all_in_sync(self, group: int = 0) -> None:
        """Until every member of the group is in the in-sync set."""

        def are_in() -> bool:
            seen = self.survey()
            record = seen.registers[group]
            return record is not None and len(record.in_sync) == seen.layout.replicas and seen.master(group) is not None

        self.until(are_in, "every member is in sync")

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Until something is so; a busy machine is no hang."""
        end_s, pause = time.monotonic() + PATIENCE_S, threading.Event()
        while not holds():
            assert time.monotonic() < end_s, f"never happened: {what}\n{self.story()}"
            pause.wait(0.1)

    def client(self, who: Who) -> RawClient:
        """A connection to a member."""
        layout = self.folder.load().layout
        return RawClient((layout.address(who), layout.ports.broker))

    def stored(self, topic: str, queues: int, group: int = 0) -> dict[Place, bytes]:
        """Everything that the master of a group shows, by queue and offset."""
        holder = self.record(group).holder
        assert holder is not None
        found: dict[Place, bytes] = {}
        with self.client(Who(group, holder.member.ordinal)) as client:
            for queue in range(queues):
                self.until(partial(self._read, client, topic, queue, found), f"queue {queue} is read to its end")
        return found

    def _read(self, client: RawClient, topic: str, queue: int, found: dict[Place, bytes]) -> bool:
        """Up to where the queue ended when this began; somebody may be sending still."""
        end = client.ask(_GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue)})
        begin = 1 + max((offset for one, offset in found if one == queue), default=-1)
        last = begin - 1
        for last, body in client.read(topic, queue, begin):
            found[queue, last] = body
        return end.code != 0 or last + 1 >= int(end.ext["offset"])

    def story(self) -> str:
        """The ends of all logs, for anyone who wonders."""
        parts = []
        said = (path for end in ("log", "out", "stderr") for path in self.folder.path.glob(f"*.{end}"))
        for path in sorted(said):
            lines = path.read_text(errors="replace").splitlines()[-25:]
            parts.append("\n".join([f"--- {path.name}", *lines]))
        return "\n".join(parts)


class Producing:
    """A producer in a process of its own, from `with` to its end; it writes down what it was told SEND_OK for."""

    def __init__(self, name_server: str, topic: str, ledger: Path, prefix: str = "m", pause_ms: float = 5.0) -> None:
        self._ledger = ledger
        script = str(ROOT / "tests/testkit/ledgerproducer.py")
        self._command = [sys.executable, script, name_server, topic, prefix, str(ledger), str(pause_ms)]
        self._popen: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Producing:
        with self._ledger.with_suffix(".log").open("ab") as log:
            self._popen = subprocess.Popen(self._command, stdout=log, stderr=log, env=_environment({}))
        until(lambda: len(self.acknowledged()) > 0, "the producer has sent something")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._popen is not None
        self._popen.send_signal(signal.SIGTERM)
        try:
            code = self._popen.wait(HANG_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            raise
        assert code == 0 or kind is not None, self._ledger.with_suffix(".log").read_text()[-2000:]

    def acknowledged(self) -> dict[bytes, int]:
        """What it was told SEND_OK for, with the instant in milliseconds."""
        return {body: int(at_ms) for body, at_ms, _, _ in self._lines()}

    def places(self) -> dict[bytes, Place]:
        """What it was told SEND_OK for, with the place that it was told."""
        return {body: (int(queue), int(offset)) for body, _, queue, offset in self._lines()}

    def said(self) -> str:
        """What went wrong for it, as it wrote that down."""
        return self._ledger.with_suffix(".log").read_text(errors="replace")

    def _lines(self) -> Iterator[list[bytes]]:
        if self._ledger.exists():
            for line in self._ledger.read_bytes().splitlines(keepends=True):
                if line.endswith(b"\n"):
                    yield line.strip().split(b",")

    def until_more(self, count: int = 20) -> None:
        """Until so many more messages were acknowledged."""
        before = len(self.acknowledged())
        until(lambda: len(self.acknowledged()) >= before + count, f"{count} more messages are acknowledged")


def _listens(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), 1.0):
        return True
    return False
