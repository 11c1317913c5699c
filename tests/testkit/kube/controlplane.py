"""A real API server over a real etcd, as processes on 127.0.0.1: `with ControlPlane(folder) as plane:`.

RBAC decides, service accounts have tokens, admission runs; no node, no controller, no scheduler: what is written stays
as it was written, until somebody changes it.  Everything lies in one folder, and the address stays the same when a
process is started again, also over a backup of etcd that was put back.

Nobody is left behind: a process dies with the *thread* that started it (`setpriv --pdeathsig`), which therefore has to
outlive it, and after `LIFE_S` at the latest.  A port is chosen before it is used, so a start that lost its port to
somebody else is tried with another.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from testkit.kube import binaries
from testkit.kube.api import Api, RefusedError
from testkit.kube.pki import Authority
from testkit.pairplay import free_port

START_S = 120.0  # a busy machine; 4 s on a quiet one
STOP_S = 60.0
LIFE_S = 1800.0
ADMIN_TOKEN = "admin-token"
_PAUSE_S = 0.1
_TRIES = 3


class ControlPlane:
    """See the module; `admin` may do anything."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder / "pki")
        self.authority.server("tls", "IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default.svc")
        (folder / "tokens.csv").write_text(f'{ADMIN_TOKEN},admin,u-admin,"system:masters"\n')
        self._etcd_ports = (free_port(), free_port())
        self._port = free_port()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._life = threading.Timer(LIFE_S, self.kill)
        self._life.daemon = True

    @property
    def server(self) -> str:
        """Its address, as clients write it."""
        return f"https://127.0.0.1:{self._port}"

    @property
    def admin(self) -> Api:
        """May do anything."""
        return self.as_user(ADMIN_TOKEN)

    def as_user(self, token: str) -> Api:
        """Whoever has this token."""
        return Api(self.server, self.authority.certificate, token)

    def start(self) -> None:
        """Both processes, until the API server calls itself ready."""
        self.start_etcd()
        self.start_api_server()
        self.wait_ready()

    def start_etcd(self) -> None:
        """On the folder as it is."""
        client, peer = (f"http://127.0.0.1:{port}" for port in self._etcd_ports)
        self._start(
            "etcd", "--data-dir", "etcd", "--log-level", "warn", "--unsafe-no-fsync",
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
        )  # fmt: skip

    def start_api_server(self) -> None:
        """Returns at once."""
        self._start(
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{self._etcd_ports[0]}",
            "--bind-address=127.0.0.1", f"--secure-port={self._port}", "--endpoint-reconciler-type=none",
            "--tls-cert-file=pki/tls.crt", "--tls-private-key-file=pki/tls.key", "--client-ca-file=pki/ca.crt",
            "--token-auth-file=tokens.csv", "--service-account-key-file=pki/sa.pub",
            "--service-account-signing-key-file=pki/sa.key", "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=Node,RBAC", "--profiling=false",
        )  # fmt: skip

    def wait_ready(self) -> None:
        """Until the API server calls itself ready, its policies and roles included; any thread may wait."""
        self._until(self._is_ready, "kube-apiserver")

    def stop(self, name: str) -> None:
        """SIGTERM, and wait until it is gone; what does not go is killed."""
        process = self._running.pop(name)
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """All that runs, at once."""
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.wait()
        self._running.clear()

    @contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        """SIGSTOP for the time of a `with`."""
        process = self._running[name]
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def back_up(self, name: str) -> None:
        """Keep a copy of what etcd has now; both processes are stopped and started for it."""
        with self._without_processes():
            shutil.copytree(self.folder / "etcd", self.folder / f"etcd-{name}")

    def restore(self, name: str) -> None:
        """Put a copy back, as after the loss of etcd's disk."""
        with self._without_processes():
            shutil.rmtree(self.folder / "etcd")
            shutil.copytree(self.folder / f"etcd-{name}", self.folder / "etcd")

    @contextmanager
    def _without_processes(self) -> Iterator[None]:
        for name in ("kube-apiserver", "etcd"):
            self.stop(name)
        yield
        self.start()

    def _start(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", str(binaries.program(name)), *arguments],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def _is_ready(self) -> bool:
        try:
            self.admin.get("/readyz")
        except (RefusedError, OSError):
            return False
        return True

    def _until(self, done: Callable[[], bool], name: str) -> None:
        """Ask until it is so; the wait in between is one for the death of the process."""
        process = self._running[name]
        for _ in range(int(START_S / _PAUSE_S)):
            if done():
                return
            try:
                code = process.wait(_PAUSE_S)
            except subprocess.TimeoutExpired:
                continue
            raise DiedError(f"{name} ended with {code}:\n{self.log(name)}")
        raise AssertionError(f"{name} is not ready after {START_S} s:\n{self.log(name)}")

    def log(self, name: str) -> str:
        """The end of what it said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-4000:]

    def __enter__(self) -> ControlPlane:
        self._life.start()
        try:
            self._start_somewhere()
        except BaseException:
            self.kill()
            raise
        return self

    def _start_somewhere(self) -> None:
        for tries_left in reversed(range(_TRIES)):
            try:
                self.start()
                return
            except DiedError:
                self.kill()
                if not tries_left:
                    raise
                self._etcd_ports = (free_port(), free_port())
                self._port = free_port()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._life.cancel()
        self.kill()


class DiedError(AssertionError):
    """A process ended instead of starting."""
