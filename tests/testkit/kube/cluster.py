"""A Kubernetes cluster on this machine: a control plane and real kubelets, `with Cluster(folder) as cluster:`.

Controllers have the roles that they have in a real cluster, the scheduler schedules, names resolve, services have
addresses, volumes are made (`base.yaml`, `provisioner`).  A silent node is NotReady after ten seconds instead of forty.
Needs root, containerd, runc and the CNI plug-ins (requirements/apt.txt, nodes), and what `make kube` builds.

Everything lies in one folder and in namespaces of its own (`network`), so nothing of it can be reached from outside by
accident: `admin` and `inside` go there.  The state is thrown away at the end; what a killed test run left behind is
removed by the next cluster.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from testkit.kube import audit, binaries, images, network, node
from testkit.kube.api import Api, RefusedError
from testkit.kube.daemons import Daemons
from testkit.kube.network import SERVICES, SUBNET, Network
from testkit.kube.node import QUICK, Node
from testkit.kube.pki import Authority
from testkit.sources import ROOT

TESTS = ROOT / "tests"
SERVER = f"https://{SUBNET}.1:6443"
GRACE_S = 10
COMMAND_S = 120.0
_ETCD = "http://127.0.0.1:2379"
_NAMES = f"IP:127.0.0.1,IP:{SUBNET}.1,IP:10.96.0.1,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
_USERS = {
    "admin": ("admin", "system:masters"),
    "kcm": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "proxy": ("system:kube-proxy", ""),
    "coredns": ("system:coredns", ""),
    "provisioner": ("tests:provisioner", ""),
}
_COREFILE = f""".:53 {{
  bind {SUBNET}.1
  errors
  ready 127.0.0.1:8181
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig KUBECONFIG c
    ttl 5
  }}
  cache 5
}}
"""


class Cluster:
    """See the module; `tars` are images for every node."""

    def __init__(
        self, folder: Path, nodes: int = 4, tars: Sequence[Path] = (), api_server: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.network = Network(nodes)
        self.nodes = [Node(index, self.network, folder) for index in self.network.nodes]
        self._tars = [images.pause(), *tars]
        self._api_server = dict(api_server or {})
        self.daemons = Daemons(folder, self.network.inside, {**QUICK, "PYTHONPATH": str(TESTS)})

    @property
    def inside(self) -> tuple[str, ...]:
        """Prefix of a command that is to see the cluster's addresses."""
        return self.network.inside

    @property
    def admin(self) -> Api:
        """May do anything."""
        return Api(SERVER, self.folder / "pki" / "ca.crt", "admin-token", self.network.connect)

    def kubectl(self, *arguments: str) -> list[str]:
        """A command line; kubectl waits for ever where nobody tells it not to."""
        settings = f"--kubeconfig={self.folder / 'admin.kubeconfig'}"
        return [*self.inside, str(binaries.program("kubectl")), settings, "--request-timeout=60s", *arguments]

    def helm(self, *arguments: str) -> str:
        """Run helm against the cluster; what it said."""
        settings = f"--kubeconfig={self.folder / 'admin.kubeconfig'}"
        words = [*self.inside, str(binaries.program("helm")), settings, *arguments]
        done = subprocess.run(words, capture_output=True, text=True, timeout=COMMAND_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def load(self, tars: Sequence[Path]) -> None:
        """Give every node more images."""
        with ThreadPoolExecutor(len(self.nodes)) as threads:
            list(threads.map(lambda each: each.load(tars), self.nodes))

    def up(self) -> None:
        """Start everything, until each node is ready and names resolve."""
        network.clear_what_the_dead_left()
        node.clear_what_the_dead_left()
        self.network.up()
        self._write_identities()
        self._start_api_server()
        for each in self.nodes:
            each.power_on()
        self.load(self._tars)
        self.daemons.until(self._is_answering, "kube-apiserver")
        self._start_controllers()
        self.admin.apply((Path(__file__).parent / "base.yaml").read_text())
        self._start_services()
        for each in self.nodes:
            each.join()
        self.daemons.until(lambda: len(self.ready_nodes()) == len(self.nodes), "kube-controller-manager")
        self.daemons.until(self._has_default_account, "kube-controller-manager")

    def down(self) -> None:
        """End everything."""
        for each in self.nodes:
            each.power_off()
        self.daemons.kill()
        self.network.down()

    def ready_nodes(self) -> set[str]:
        """By name."""
        found = self.admin.get("/api/v1/nodes")["items"]
        return {each["metadata"]["name"] for each in found if condition(each, "Ready") == "True"}

    def log(self, name: str) -> str:
        """The end of what a program of the control plane said."""
        return self.daemons.log(name)

    def _write_identities(self) -> None:
        authority = Authority(self.folder / "pki")
        authority.server("tls", _NAMES)
        authority.client("kubelet-client", "/O=system:masters/CN=apiserver-kubelet-client")
        users = _USERS | {each.name: (f"system:node:{each.name}", "system:nodes") for each in self.nodes}
        lines = [f'{name}-token,{user},u-{name},"{group}"' for name, (user, group) in users.items()]
        (self.folder / "tokens.csv").write_text("\n".join(lines) + "\n")
        for name in users:
            (self.folder / f"{name}.kubeconfig").write_text(yaml.safe_dump(self._kubeconfig(f"{name}-token")))

    def _kubeconfig(self, token: str) -> dict[str, Any]:
        cluster = {"server": SERVER, "certificate-authority": str(self.folder / "pki" / "ca.crt")}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "default"}}],
        }

    def _start_api_server(self) -> None:
        peer = "http://127.0.0.1:2380"
        self.daemons.start(
            "etcd", binaries.program("etcd"), "--data-dir", "etcd", "--log-level", "warn", "--unsafe-no-fsync",
            "--listen-client-urls", _ETCD, "--advertise-client-urls", _ETCD,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
        )  # fmt: skip
        flags = {
            "etcd-servers": _ETCD,
            "bind-address": f"{SUBNET}.1",
            "advertise-address": f"{SUBNET}.1",
            "secure-port": "6443",
            "tls-cert-file": "pki/tls.crt",
            "tls-private-key-file": "pki/tls.key",
            "client-ca-file": "pki/ca.crt",
            "token-auth-file": "tokens.csv",
            "service-account-key-file": "pki/sa.pub",
            "service-account-signing-key-file": "pki/sa.key",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-cluster-ip-range": SERVICES,
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "allow-privileged": "true",
            "enable-aggregator-routing": "true",
            "kubelet-preferred-address-types": "InternalIP",
            "kubelet-client-certificate": "pki/kubelet-client.crt",
            "kubelet-client-key": "pki/kubelet-client.key",
            # For `shorttokens`.
            "feature-gates": "MutatingAdmissionPolicy=true",
            "runtime-config": "admissionregistration.k8s.io/v1beta1=true",
        } | self._api_server
        arguments = [*(f"--{name}={value}" for name, value in flags.items()), *audit.flags(self.folder)]
        self.daemons.start("kube-apiserver", binaries.program("kube-apiserver"), *arguments)

    def _start_controllers(self) -> None:
        self.daemons.start(
            "kube-controller-manager", binaries.program("kube-controller-manager"), *_as("kcm"),
            "--bind-address=127.0.0.1",
            "--service-account-private-key-file=pki/sa.key", "--root-ca-file=pki/ca.crt",
            "--use-service-account-credentials=true", "--leader-elect=false", "--cluster-signing-cert-file=pki/ca.crt",
            "--cluster-signing-key-file=pki/ca.key", "--node-monitor-period=1s",
            f"--node-monitor-grace-period={GRACE_S}s",
        )  # fmt: skip
        self.daemons.start(
            "kube-scheduler", binaries.program("kube-scheduler"), *_as("scheduler"), "--bind-address=127.0.0.1",
            "--leader-elect=false",
        )  # fmt: skip

    def _start_services(self) -> None:
        (self.folder / "shared").mkdir(exist_ok=True)
        settings = str(self.folder / "coredns.kubeconfig")
        (self.folder / "Corefile").write_text(_COREFILE.replace("KUBECONFIG", settings))
        self.daemons.start("coredns", binaries.program("coredns"), "-conf", "Corefile")
        authority = str(self.folder / "pki" / "ca.crt")
        serve = ("-m", "testkit.kube.provisioner", SERVER, authority, "provisioner-token", str(self.folder))
        self.daemons.start("provisioner", sys.executable, *serve)

    def _is_answering(self) -> bool:
        return _holds(lambda: bool(self.admin.get("/readyz")))

    def _has_default_account(self) -> bool:
        return _holds(lambda: bool(self.admin.get("/api/v1/namespaces/default/serviceaccounts/default")))

    def __enter__(self) -> Cluster:
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()


def condition(document: Mapping[str, Any], kind: str) -> str:
    """Its status: True, False, Unknown; empty when nobody said."""
    found = document.get("status", {}).get("conditions", [])
    return next((str(each["status"]) for each in found if each["type"] == kind), "")


def _as(name: str) -> tuple[str, str, str]:
    settings = f"{name}.kubeconfig"
    return (
        f"--kubeconfig={settings}",
        f"--authentication-kubeconfig={settings}",
        f"--authorization-kubeconfig={settings}",
    )


def _holds(claim: Callable[[], bool]) -> bool:
    try:
        return claim()
    except (RefusedError, OSError):
        return False
