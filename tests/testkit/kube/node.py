"""One node of a test cluster: a real kubelet with its own containerd, kube-proxy, cgroup root and range of pods.

A node is a network, mount, PID and UTS namespace.  Its PID 1 is `pause`, which reaps orphans; everything of the node
runs below it, so killing it is a power cut: every process is gone and every mount with it, and what the node's disk
held stays in the folder `disk`.  /var/lib, /var/log and /run are the node's own; everything else is the machine's.

The kubelet wants its cgroup root before it starts, and two of them must not share one: each would remove the other's
pods.  With cgroup v1 a new cpuset is empty and takes no process until it is filled.  (cgroup v2: as documented, not
tried.)  Files per process are limited as on a usual machine; containers cannot ask for more than the kubelet has.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import yaml

from testkit.kube import binaries
from testkit.kube.daemons import Daemons
from testkit.kube.network import DNS, PODS, Network

_CGROUPS = Path("/sys/fs/cgroup")
_FILES_MAX = 20_000
_STEP_S = 120.0
_IMAGE_S = 600.0  # a gigabyte, on every node at once
_PAUSE_S = 0.05
# An API connection that died is noticed after four seconds, not after 45.
QUICK = {"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "2", "HTTP2_PING_TIMEOUT_SECONDS": "2"}


class Node:
    """Number `index` of `network`; `cluster` is the folder with pki/ and the kubeconfigs."""

    def __init__(self, index: int, network: Network, cluster: Path) -> None:
        self.index = index
        self.name = f"node{index}"
        self.folder = cluster / self.name
        self._network = network
        self._cluster = cluster
        self._cgroup = f"gmq{os.getpid()}-{self.name}"
        self._init = 0
        self._power: Daemons | None = None
        self._daemons: Daemons | None = None

    def power_on(self) -> None:
        """PID 1 and containerd; the disk is as it was left."""
        for name in ("disk", "log", "run", "cni"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for group in _roots():
            _make_cgroup(group / self._cgroup)
            _make_cgroup(group / self._cgroup / "system")
        self._boot()
        self._write_containerd()
        assert self._daemons is not None
        self._daemons.start("containerd", "containerd", "-c", str(self.folder / "containerd.toml"))

    def load(self, images: Sequence[Path]) -> None:
        """Wait for containerd and give it the images; any thread may do it."""
        assert self._daemons is not None
        self._daemons.until(lambda: self._try("ctr", "version"), "containerd")
        for image in images:
            self.run("ctr", "-n", "k8s.io", "image", "import", str(image), within_s=_IMAGE_S)

    def join(self) -> None:
        """kubelet and kube-proxy: the node registers itself."""
        assert self._daemons is not None
        settings = self._cluster / f"{self.name}.kubeconfig"
        (self.folder / "kubelet.yaml").write_text(yaml.safe_dump(self._kubelet()))
        self._daemons.start(
            "kubelet", "prlimit", f"--nofile={_FILES_MAX}", str(binaries.program("kubelet")),
            f"--config={self.folder / 'kubelet.yaml'}", f"--kubeconfig={settings}", f"--hostname-override={self.name}",
            f"--node-ip={self._network.address(self.index)}",
        )  # fmt: skip
        self._daemons.start(
            "kube-proxy", binaries.program("kube-proxy"), f"--kubeconfig={self._cluster / 'proxy.kubeconfig'}",
            f"--hostname-override={self.name}", "--proxy-mode=iptables", f"--cluster-cidr={PODS}.0.0/16",
            "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0",
            "--conntrack-tcp-timeout-close-wait=0",
        )  # fmt: skip

    def power_off(self) -> None:
        """Every process of the node is gone at once, its mounts with them; the disk stays."""
        for daemons in (self._power, self._daemons):
            if daemons is not None:
                daemons.kill()
        self._power = self._daemons = None
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        self._remove_cgroups()

    def run(self, *command: str, within_s: float = _STEP_S) -> str:
        """A command on the node; what it wrote."""
        done = subprocess.run(
            [*self._enter(), *command], capture_output=True, text=True, timeout=within_s, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{self.name}: {' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def log(self, name: str) -> str:
        """The end of what kubelet, containerd or kube-proxy said."""
        return "" if self._daemons is None else self._daemons.log(name)

    def _try(self, *command: str) -> bool:
        with suppress(RuntimeError):
            self.run(*command)
            return True
        return False

    def _boot(self) -> None:
        ready, folder = self.folder / "run" / "booted", self.folder
        mounts = "; ".join(f"mount --bind {folder / mine} {place}" for mine, place in _PLACES)
        script = f"hostname {self.name}; {mounts}; mkdir -p /run/netns; touch /run/booted; exec {_pause()}"
        self._power = Daemons(folder, ("nsenter", f"--net={self._network.path(self.index)}"))
        flags = ("-m", "-u", "-p", "-f", "--kill-child", "--mount-proc", "--propagation", "private")
        self._power.start("init", "unshare", *flags, "sh", "-ec", script)
        self._power.until(ready.exists, "init")
        outer = self._power.pid("init")
        self._init = int(Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0])
        procs = " ".join(str(group / self._cgroup / "system" / "cgroup.procs") for group in _roots())
        into = f'for each in {procs}; do echo $$ >$each; done; exec "$@"'
        self._daemons = Daemons(folder, ("sh", "-ec", into, "sh", *self._enter()), QUICK)

    def _enter(self) -> tuple[str, ...]:
        return ("nsenter", "-t", str(self._init), "-m", "-u", "-n", "-p")

    def _write_containerd(self) -> None:
        (self.folder / "containerd.toml").write_text(
            _CONTAINERD.replace("NETWORKS", str(self.folder / "cni"))
        )
        pods = {"ranges": [[{"subnet": f"{PODS}.{self.index}.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}
        bridge = {
            "type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "hairpinMode": True,
            "ipam": {"type": "host-local", **pods},
        }  # fmt: skip
        document = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}
        (self.folder / "cni" / "10-bridge.conflist").write_text(json.dumps(document))

    def _kubelet(self) -> dict[str, object]:
        trust = str(self._cluster / "pki" / "ca.crt")
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self._network.address(self.index),
            "authentication": {
                "anonymous": {"enabled": False}, "webhook": {"enabled": True}, "x509": {"clientCAFile": trust},
            },
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._cgroup}",
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "failCgroupV1": False,
            "failSwapOn": False,
            "clusterDNS": [DNS],
            "clusterDomain": "cluster.local",
            "resolvConf": "",
            # The controller declares a silent node gone after ten seconds; a lease of 40 would make that flap.
            "nodeLeaseDurationSeconds": 8,
            "nodeStatusUpdateFrequency": "2s",
            "maxOpenFiles": _FILES_MAX,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
        }  # fmt: skip

    def _remove_cgroups(self) -> None:
        """A process that was killed needs a moment to be gone."""
        pause = threading.Event()
        for _ in range(200):
            left = _found(self._cgroup)
            if not left:
                return
            for folder in left:
                _remove_tree(folder)
            pause.wait(_PAUSE_S)


_PLACES = (("disk", "/var/lib"), ("log", "/var/log"), ("run", "/run"))
_CONTAINERD = """version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/local/pause:1"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "NETWORKS"
"""


def clear_what_the_dead_left() -> None:
    """Cgroups of processes that are not there any more."""
    for path in _found("gmq*-node*"):
        found = re.match(r"gmq(\d+)-", path.name)
        if found and not Path("/proc", found[1]).exists():
            _remove_tree(path)


def _pause() -> Path:
    return binaries.program("pause")


def _is_v2() -> bool:
    return (_CGROUPS / "cgroup.controllers").exists()


def _roots() -> list[Path]:
    if _is_v2():
        return [_CGROUPS]
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return [Path(mount[1]) for mount in mounts if mount[2] == "cgroup"]


def _found(pattern: str) -> list[Path]:
    """Folders of nodes in each hierarchy; containerd uses the one of version 2 beside those of version 1."""
    return [*_CGROUPS.glob(pattern), *_CGROUPS.glob(f"*/{pattern}")]


def _make_cgroup(folder: Path) -> None:
    if _is_v2():
        (folder.parent / "cgroup.subtree_control").write_text("+cpu +cpuset +memory +pids +io")
    folder.mkdir(exist_ok=True)
    for name in ("cpuset.cpus", "cpuset.mems"):
        if not _is_v2() and (folder / name).exists():
            (folder / name).write_text((folder.parent / name).read_text())


def _remove_tree(folder: Path) -> None:
    for path, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):
            Path(path).rmdir()

