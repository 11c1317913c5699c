"""A name server and the members of one group as processes, with a cutting proxy before the master's port 10912.

    with Pair(folder, role="SYNC_MASTER") as pair:
        pair.start_master(); pair.start_slave(1)

Every process is killed at the end of the `with`.  A member that is started again keeps its folder and its ports.
"""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from testkit.patience import HANG_S
from testkit.ports import VIP, free_port
from testkit.process import _environment
from testkit.rawclient import RawClient

SECRET = "a secret for tests, long enough"
_SEGMENT_BYTES = 4 << 20
_SMALL = {
    "store.segment_bytes": str(_SEGMENT_BYTES),
    "store.index_slots": "1000",
    "store.index_entries": "4000",
    "messages.body_bytes_max": str(1 << 20),
    "store.disk_used_refuse": "1.0",
    "store.disk_used_clean": "1.0",
}


def until(holds: Callable[[], object], what: str, within_s: float = HANG_S) -> None:
    """Ask again until it is so; AssertionError naming `what` when it does not come."""
    end = time.monotonic() + within_s
    pause = threading.Event()
    while not holds():
        assert time.monotonic() < end, f"never happened: {what}"
        pause.wait(0.02)


class Member:
    """One process of the group."""

    def __init__(self, folder: Path, command: list[str], environment: dict[str, str]) -> None:
        self.folder = folder
        self._stderr = folder.with_name(folder.name + ".stderr")
        with self._stderr.open("ab") as stderr:
            self.popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
                start_new_session=True,
            )
        self.addresses: dict[str, tuple[str, int]] = {}

    def wait_ready(self, within_s: float = HANG_S) -> None:
        """Until it says so."""
        assert self.popen.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.popen.stdout, selectors.EVENT_READ)
            assert selector.select(within_s), f"not ready\n{self.stderr()}"
        line = self.popen.stdout.readline().decode()
        assert line.startswith("ready "), f"{line!r}\n{self.stderr()[-4000:]}"
        for part in line.split()[1:]:
            name, _, address = part.partition("=")
            host, _, port = address.rpartition(":")
            self.addresses[name] = (host, int(port))

    def stderr(self) -> str:
        """All that it, and those before it, wrote there."""
        return self._stderr.read_text(errors="replace")

    def kill(self) -> None:
        """kill -9."""
        self.popen.kill()
        self.popen.wait(HANG_S)

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(HANG_S)

    def close(self) -> None:
        """Kill it if it still runs."""
        if self.popen.poll() is None:
            self.kill()
        if self.popen.stdout is not None:
            self.popen.stdout.close()

    def log_bytes(self) -> bytes:
        """Its commit log, one segment behind the other."""
        return b"".join(path.read_bytes() for path in sorted((self.folder / "commitlog").iterdir()))


class Pair:
    """See the module; `config` are dotted keys for every member."""

    def __init__(self, folder: Path, role: str = "SYNC_MASTER", config: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.role = role
        self.members: dict[int, Member] = {}
        self.proxy = Proxy()
        self._config = _SMALL | (config or {})
        self._ports: dict[int, tuple[int, int]] = {}
        self._secret = folder / "secret"
        self._secret.write_text(SECRET)
        self._nameserver = Member(folder / "names", self._command("nameserver"), _environment({}))

    def _command(self, name: str, *more: str) -> list[str]:
        ports = ["--nameserver-port", "0", "--bind", "127.0.0.1", "--http-port", "-1"] if name == "nameserver" else []
        return [sys.executable, "-m", "gantry.cli.main", name, *ports, *more]

    def start(self, broker_id: int, role: str = "", ready: bool = True, **config: str) -> Member:
        """Start a member: 0 is the master, unless `role` says otherwise."""
        if broker_id in self.members:
            self.members[broker_id].close()
        role = role or (self.role if broker_id == 0 else "SLAVE")
        folder = self.folder / f"member-{broker_id}"
        port, ha_port = self._ports.setdefault(broker_id, (free_port(VIP), free_port()))
        values = {
            "name": "broker-a",
            "id": str(broker_id if role == "SLAVE" else 0),
            "role": role,
            "name_servers": "{}:{}".format(*self._nameserver.addresses["nameserver"]),
            "replication.secret_file": str(self._secret),
            "store.root": str(folder),
            "network.port": str(port),
            "network.ha_port": str(ha_port),
            "network.http_port": "-1",
            "network.ha_api_port": "-1",
        }
        if role == "SLAVE":
            values["replication.master"] = f"127.0.0.1:{self.proxy.port}"
        else:
            self.proxy.target = ha_port
        given = {key.replace("__", "."): value for key, value in config.items()}
        member = Member(folder, self._command("broker"), _environment(self._config | values | given))
        self.members[broker_id] = member
        if ready:
            member.wait_ready()
        return member

    @property
    def nameserver(self) -> tuple[str, int]:
        """Where clients begin."""
        return self._nameserver.addresses["nameserver"]

    def client(self, broker_id: int) -> RawClient:
        """A connection to a member."""
        return RawClient(self.members[broker_id].addresses["broker"])

    def until_writable(self, topic: str = "orders") -> None:
        """Until the master takes messages."""

        def takes() -> bool:
            with self.client(0) as client:
                client.send(topic, 0, b"is anybody there")
                reply = client.reply()
                return reply is not None and reply.code == 0

        until(takes, "the master takes messages")

    def until_equal(self, *broker_ids: int) -> None:
        """Until these slaves have the master's log, byte for byte."""

        def are_equal() -> bool:
            mine = self.members[0].log_bytes()
            return all(self.members[one].log_bytes()[: len(mine)] == mine for one in broker_ids)

        until(are_equal, "the logs are equal")

    def __enter__(self) -> Pair:
        self._nameserver.wait_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in (*self.members.values(), self._nameserver):
            member.close()
        self.proxy.close()


class Proxy:
    """Passes bytes on, until it is cut."""

    def __init__(self) -> None:
        self.target = 0
        self._is_cut = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def _begin(self, what: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=what, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(near)
            if self._is_cut or not self.target:
                _hang_up(near)
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self.target), HANG_S)
            except OSError:
                _hang_up(near)
                continue
            self._sockets.append(far)
            far.settimeout(None)
            self._begin(self._pass_on, near, far)
            self._begin(self._pass_on, far, near)

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 18):
                other.sendall(data)
        _hang_up(one)
        _hang_up(other)

    def cut(self) -> None:
        """End all connections and take no new ones."""
        self._is_cut = True
        for one in list(self._sockets):
            _hang_up(one)

    def heal(self) -> None:
        """Pass on again."""
        self._is_cut = False

    def close(self) -> None:
        """No more."""
        self.cut()
        _hang_up(self._listener)
        for thread in self._threads:
            thread.join(HANG_S)
        for one in (*self._sockets, self._listener):
            one.close()


def _hang_up(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
