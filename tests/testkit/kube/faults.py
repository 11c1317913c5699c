"""What happens to processes in pods, from outside: killed, kept down, frozen; and which operator leads.

A process is found by a variable of its environment that holds the pod's name, and its successors by their cgroup, which
is cheap to look at: a container that the kubelet starts again is in the same pod.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from testkit.kube.api import RefusedError
from testkit.kube.orders import SYSTEM, Orders
from testkit.stopping import stop

OPERATORS_LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/gantrymq"
BROKER, OPERATOR = "POD_NAME", "GANTRY_OPERATOR_IDENTITY"
_CGROUPS = Path("/sys/fs/cgroup")
_LOOK_S = 0.02


def leader(orders: Orders) -> str:
    """The operator's pod that works; empty: nobody."""
    try:
        holder = str(orders.cluster.admin.get(OPERATORS_LEASE)["spec"]["holderIdentity"])
    except RefusedError:
        return ""
    return holder.partition("_")[0]


def operators_node(orders: Orders, pod: str) -> str:
    """Where it runs; empty when it is not there."""
    with suppress(RefusedError):
        return str(orders.cluster.admin.get(f"/api/v1/namespaces/{SYSTEM}/pods/{pod}")["spec"].get("nodeName", ""))
    return ""


def process_of(pod: str, variable: str = BROKER) -> int:
    """Its process, as this machine sees it; 0: there is none."""
    wanted = f"{variable}={pod}".encode()
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdecimal() and wanted in (folder / "environ").read_bytes().split(b"\0"):
                return int(folder.name)
        except OSError:  # it has just ended
            continue
    return 0


def kill(pod: str, variable: str = BROKER) -> bool:
    """SIGKILL; whether there was somebody."""
    pid = process_of(pod, variable)
    if pid:
        os.kill(pid, signal.SIGKILL)
    return bool(pid)


@contextmanager
def kept_down(pod: str) -> Iterator[None]:
    """Killed, and whatever the kubelet starts in its place as well, for the time of a `with`."""
    pid = process_of(pod)
    assert pid, f"{pod} has no process"
    folder, over = _folder_of(pid), threading.Event()
    watching = threading.Thread(target=_keep_down, args=(folder, over), daemon=True)
    os.kill(pid, signal.SIGKILL)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


@contextmanager
def frozen(pod: str, variable: str = BROKER) -> Iterator[None]:
    """Stop the process for the time of a `with`."""
    pid = process_of(pod, variable)
    assert pid, f"{pod} has no process"
    stop(pid)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _folder_of(pid: int) -> Path:
    """The cgroup of its pod."""
    lines = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    places = {controllers: path for _, controllers, path in lines}
    mine = _CGROUPS / "pids" / places["pids"].lstrip("/") if "pids" in places else _CGROUPS / places[""].lstrip("/")
    return mine.parent


def _keep_down(folder: Path, over: threading.Event) -> None:
    while not over.wait(_LOOK_S):
        for path in folder.glob("*/cgroup.procs"):
            with suppress(OSError):  # the container goes meanwhile
                for pid in path.read_text().split():
                    if Path(f"/proc/{pid}/comm").read_text().strip() != "pause":
                        os.kill(int(pid), signal.SIGKILL)
