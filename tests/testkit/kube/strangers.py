"""Pods of a namespace of their own with other people's clients in them, and drivers that tell those what to do.

    with Strangers(orders.cluster, tmp_path) as strangers:
        strangers.pod("java-5.x", "first")
        strangers.driver("java-5.x", "first").call("send", ...)

All pods stand on one node, the last one, so only that one is given the image.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import yaml

from interop.processes import Driver
from testkit.kube import clientimage
from testkit.kube.api import RefusedError
from testkit.kube.cluster import Cluster, condition
from testkit.kube.orders import NAMES
from testkit.pairplay import until

SPACE = "others"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
READY_S = 240.0


class Strangers:
    """See the module; everything ends with the `with`."""

    def __init__(self, cluster: Cluster, home: Path) -> None:
        self._cluster = cluster
        self._home = home
        self._drivers: list[Driver] = []

    def pod(self, name: str) -> None:
        """One that is ready, and does nothing by itself."""
        container = {
            "name": "client", "image": clientimage.NAME, "imagePullPolicy": "Never",
            "command": ["python3", "-c", "import signal; signal.pause()"],
            "env": [{"name": "HOME", "value": "/tmp"}],
        }  # fmt: skip
        labels = {"gantrymq.io/client": "yes"}
        node = self._cluster.nodes[-1].name
        spec = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]}
        about = {"name": name, "namespace": SPACE, "labels": labels}
        self._cluster.admin.apply(
            yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec})
        )
        until(lambda: self._is_ready(name), f"the pod {name} is ready", READY_S)

    def driver(self, client: str, pod: str) -> Driver:
        """A client of that kind, started in the pod."""
        words = self._cluster.kubectl("exec", "-i", "-n", SPACE, pod, "--")
        words = [each for each in words if not each.startswith("--request-timeout")]  # it lives for longer
        home = self._home / f"{client}-{len(self._drivers)}"
        made = Driver(client, [*words, *clientimage.command(client, NAMES)], home)
        self._drivers.append(made)
        return made

    def kill(self, pod: str) -> None:
        """It is gone at once, with anyone who is in it."""
        self._cluster.admin.delete(f"{PODS}/{pod}?gracePeriodSeconds=0")
        until(lambda: not self._is_there(pod), f"the pod {pod} is gone", READY_S)

    def _is_ready(self, name: str) -> bool:
        return condition(self._cluster.admin.get(f"{PODS}/{name}"), "Ready") == "True"

    def _is_there(self, name: str) -> bool:
        try:
            return bool(self._cluster.admin.get(f"{PODS}/{name}"))
        except RefusedError:
            return False

    def __enter__(self) -> Strangers:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}
        self._cluster.admin.apply(yaml.safe_dump(space))
        self._cluster.nodes[-1].load([clientimage.tar()])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for driver in self._drivers:
            driver.kill()
            driver.wait(10.0)
        self._cluster.admin.delete(f"/api/v1/namespaces/{SPACE}")
