"""A real API server over a real etcd, as processes on 127.0.0.1: `with ControlPlane(folder) as plane:`.

RBAC decides, service accounts have tokens, admission runs; no node, no controller, no scheduler: what is written stays
as it was written, until somebody changes it.  Everything lies in one folder, and the address stays the same when a
process is started again, also over a backup of etcd that was put back.

A port is chosen before it is used, so a start that lost its port to somebody else is tried with another.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType

from testkit.kube import audit, binaries
from testkit.kube.api import Api, RefusedError
from testkit.kube.daemons import Daemons, DiedError
from testkit.kube.pki import Authority
from testkit.ports import free_port

ADMIN_TOKEN = "admin-token"
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
        self.daemons = Daemons(folder)

    @property
    def server(self) -> str:
        """Its address, as clients write it."""
        return f"https://127.0.0.1:{self._port}"

    @property
    def admin(self) -> Api:
        """May do anything."""
        return self.as_user(ADMIN_TOKEN)

    def as_user(self, token: str) -> Api:
        """Anyone who has this token."""
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
            *audit.flags(self.folder),
        )  # fmt: skip

    def wait_ready(self) -> None:
        """Until the API server calls itself ready, its policies and roles included; any thread may wait."""
        self.daemons.until(self._is_ready, "kube-apiserver")

    def stop(self, name: str) -> None:
        """SIGTERM, and wait until it is gone."""
        self.daemons.stop(name)

    def frozen(self, name: str) -> AbstractContextManager[None]:
        """Stop the program for the time of a `with`."""
        return self.daemons.frozen(name)

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
        self.daemons.start(name, binaries.program(name), *arguments)

    def _is_ready(self) -> bool:
        try:
            self.admin.get("/readyz")
        except (RefusedError, OSError):
            return False
        return True

    def __enter__(self) -> ControlPlane:
        try:
            self._start_somewhere()
        except BaseException:
            self.daemons.kill()
            raise
        return self

    def _start_somewhere(self) -> None:
        for tries_left in reversed(range(_TRIES)):
            try:
                self.start()
                return
            except DiedError:
                self.daemons.kill()
                if not tries_left:
                    raise
                self.daemons = Daemons(self.folder)
                self._etcd_ports = (free_port(), free_port())
                self._port = free_port()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.daemons.kill()
