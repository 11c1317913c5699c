"""The operator as a process of this machine, under the service account that the chart gives it.

`with Replica(plane, folder, "a") as replica: replica.start()`.  Each replica has a token of its own, by which the
audit log tells them apart; what it finds in its account's folder is what a pod would find.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple
from urllib.parse import urlsplit

from testkit.kube import audit
from testkit.kube.api import RefusedError
from testkit.kube.controlplane import ControlPlane
from testkit.ports import free_port

NAMESPACE, ACCOUNT, LEASE = "default", "gantrymq", "gantrymq"
STOP_S = 60.0
_TOKEN_S = 3600


class Release(NamedTuple):
    """Of the chart: where it is, and how its account and its Lease are called."""

    namespace: str = NAMESPACE
    name: str = ACCOUNT


class Replica:
    """One process; `writes` are its own."""

    def __init__(
        self, plane: ControlPlane, folder: Path, name: str, token_s: int = _TOKEN_S, release: Release | None = None
    ) -> None:
        self._plane = plane
        self._release = Release() if release is None else release
        self.folder = folder / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.port = free_port()
        self._tokens: set[str] = set()
        (self.folder / "ca.crt").write_bytes(plane.authority.certificate.read_bytes())
        (self.folder / "namespace").write_text(self._release.namespace)
        self.renew_token(token_s)
        self.process: subprocess.Popen[bytes] | None = None

    def renew_token(self, seconds: int = _TOKEN_S) -> None:
        """As the kubelet does."""
        path = f"/api/v1/namespaces/{self._release.namespace}/serviceaccounts/{self._release.name}/token"
        kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        wanted = kind | {"spec": {"expirationSeconds": seconds}}
        token = str(self._plane.admin.create(path, wanted)["status"]["token"])
        claims = token.split(".")[1]
        self._tokens.add(f"JTI={json.loads(base64.urlsafe_b64decode(claims + '=' * (-len(claims) % 4)))['jti']}")
        (self.folder / "unfinished").write_text(token)
        (self.folder / "unfinished").replace(self.folder / "token")

    def start(self, namespaces: str = "", module: str = "gantry_operator.main") -> None:
        """Returns at once.  A Lease that is absent is made as a released one: absence would be waited out."""
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{self._release.namespace}/leases"
        kind, released = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}, {"leaseDurationSeconds": 1}
        with suppress(RefusedError):
            self._plane.admin.create(leases, kind | {"metadata": {"name": self._release.name}, "spec": released})
        address = urlsplit(self._plane.server)
        environment = os.environ | {
            "KUBERNETES_SERVICE_HOST": str(address.hostname),
            "KUBERNETES_SERVICE_PORT": str(address.port),
            "GANTRY_OPERATOR_BROKER_IMAGE": "broker:test",
            "GANTRY_OPERATOR_NAMESPACES": namespaces,
            "GANTRY_OPERATOR_HTTP_PORT": str(self.port),
            "GANTRY_OPERATOR_LEASE": self._release.name,
            "GANTRY_OPERATOR_IDENTITY": self.name,
            "GANTRY_OPERATOR_ACCOUNT": str(self.folder),
        }
        command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", module]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)

    def revive(self) -> None:
        """Start it again when it has ended, as the kubelet would: on a busy machine it may lose its Lease."""
        if self.process is not None and self.process.poll() is not None:
            self.start()

    def send(self, number: signal.Signals) -> None:
        """A signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def ended(self) -> int:
        """Wait for its end; the exit status."""
        assert self.process is not None
        return self.process.wait(STOP_S)

    def kill(self) -> None:
        """If it runs."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def page(self, path: str) -> tuple[int, str]:
        """Status and text; status 0: nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def is_ready(self) -> bool:
        """Whether it says so."""
        return self.page("/readyz")[0] == 200

    def leads(self) -> bool:
        """Whether its own metric says so."""
        return "gantrymq_operator_leader 1.0" in self.page("/metrics")[1]

    def writes(self) -> list[audit.Write]:
        """What it wrote, as the API server saw it."""
        return [each for each in audit.writes(self._plane.folder) if each.token in self._tokens]

    def log(self) -> str:
        """All that it said."""
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def rss_bytes(self) -> int:
        """Of the process now."""
        assert self.process is not None
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the operator has ended")

    def __enter__(self) -> Replica:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        if error is not None:
            print(f"--- {self.name} said\n{self.log()[-6000:]}")
