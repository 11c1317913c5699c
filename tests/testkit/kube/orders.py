"""The chart, the cluster `orders` of its example, and a client in a pod of another namespace, on real kubelets.

    with ... as cluster:
        orders = Orders(cluster)
        orders.install(); orders.apply()
        with_ledger = orders.producer("ledger", "p", 45)

What clients were told stands in ledgers, files in the working folder of the client's pod: body, milliseconds, broker,
place of each message that was acknowledged.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from testkit.kube import projectimages
from testkit.kube.api import Document, RefusedError
from testkit.kube.cluster import Cluster, condition
from testkit.pairplay import until
from testkit.sources import ROOT

CHART = ROOT / "charts" / "gantrymq"
HOME, SYSTEM = "messaging", "gantrymq-system"
BROKERCLUSTER = f"/apis/gantrymq.io/v1alpha1/namespaces/{HOME}/brokerclusters/orders"
PODS = f"/api/v1/namespaces/{HOME}/pods"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases/orders-b0"
NAMES = f"orders-nameserver.{HOME}:9876"
CLIENT = f"""
apiVersion: v1
kind: Namespace
metadata: {{name: {HOME}}}
---
apiVersion: v1
kind: Namespace
metadata: {{name: clients}}
---
apiVersion: v1
kind: Pod
metadata: {{name: client, namespace: clients, labels: {{gantrymq.io/client: "yes"}}}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: client
      image: {projectimages.name("broker")}
      command: [python3, -c, "import signal; signal.pause()"]
      workingDir: /tmp
      volumeMounts: [{{name: scratch, mountPath: /tmp}}]
  volumes: [{{name: scratch, emptyDir: {{}}}}]
"""
ROW = 4  # fields of a line of a ledger
MEMBERS = 3
# Files of the usual sizes would fill the machine's disk three times over.
SMALL = {"store.segment_bytes": "16MiB", "store.index_slots": "10000", "store.index_entries": "40000"}
_COMMAND_S = 300.0
_STOP = """
import os, signal
for name in filter(str.isdecimal, os.listdir("/proc")):
    try:
        words = open(f"/proc/{name}/cmdline").read().split("\\0")
    except OSError:
        continue
    if words[0] == "timeout":
        os.kill(int(name), signal.SIGTERM)
"""
_WITHIN_S = 240.0  # four nodes, and whatever else a machine does


class Orders:
    """See the module."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._api = cluster.admin

    def install(self, *values: str) -> None:
        """The chart with the images that the Dockerfile builds, and the client; `values` are more of helm's words."""
        self.cluster.load([projectimages.tar(target) for target in projectimages.TARGETS])
        images = projectimages.flags(projectimages.name("operator"), projectimages.name("broker"))
        self.install_as_is(CHART, *images, *values)

    def install_as_is(self, chart: Path, *values: str) -> None:
        """A chart whose images the nodes have, and the client, which has the image that the Dockerfile builds."""
        self.cluster.helm("install", "gantrymq", str(chart), "--namespace", SYSTEM, "--create-namespace", *values)
        self._api.apply(CLIENT)
        self.until(lambda: self.is_ready("/api/v1/namespaces/clients/pods/client"), "the client is ready")

    def uninstall(self) -> None:
        """The cluster goes with its messages, then the chart; its definitions stay."""
        self.delete()
        self._api.delete(f"/api/v1/namespaces/{HOME}/persistentvolumeclaims")
        self._api.delete(LEASE)
        self.cluster.helm("uninstall", "gantrymq", "--namespace", SYSTEM)

    def delete(self) -> None:
        """The cluster goes, its volumes and its register stay."""
        self._api.delete(BROKERCLUSTER)
        ours = f"{PODS}?labelSelector=gantrymq.io/cluster%3Dorders"
        self.until(lambda: not self._api.get(ours)["items"], "all pods are gone")

    def apply(self, **brokers: object) -> None:
        """The example, until it is ready and all members are in sync; `brokers` replaces parts of spec.brokers."""
        start = time.monotonic()
        document = example()
        document["spec"]["brokers"] |= brokers
        self._api.apply(yaml.safe_dump(document))
        self.until(lambda: self.is_ready(), "the cluster is ready")
        self.until_in_sync()
        self.until(self.is_reached, "the client reaches the name servers by their Service")
        print(f"ready, and all in sync, {time.monotonic() - start:.1f} s after it was applied")

    def until(self, holds: Callable[[], object], what: str) -> None:
        """Until something is so; shows what a person would look at when it does not come."""
        try:
            until(holds, what, _WITHIN_S)
        except AssertionError:
            print(self.trouble())
            raise

    def until_in_sync(self) -> None:
        """Until every member is in the in-sync set."""
        self.until(lambda: len(self.in_sync()) == MEMBERS, "all members are in sync")

    def is_ready(self, path: str = BROKERCLUSTER) -> bool:
        """Whether an object that is there says so."""
        try:
            return condition(self._api.get(path), "Ready") == "True"
        except RefusedError:
            return False

    def is_reached(self) -> bool:
        """Whether every node between has heard of the name servers; Ready tells of pods, not of kube-proxy's rules."""
        words = ["exec", "-n", "clients", "client", "--", "gantry", "topic", "list", "--namesrv", NAMES]
        return self.kubectl(*words).returncode == 0

    def in_sync(self) -> list[int]:
        """The ordinals of the in-sync set, as the status has it."""
        groups = self._api.get(BROKERCLUSTER).get("status", {}).get("groups", [])
        return list(groups[0].get("syncSet", [])) if groups else []

    def masters(self) -> list[str]:
        """The pods that are labelled so."""
        labels = "gantrymq.io/cluster%3Dorders,gantrymq.io/role%3Dmaster"
        found = self._api.get(f"{PODS}?labelSelector={labels}")["items"]
        return [each["metadata"]["name"] for each in found]

    def master(self) -> str:
        """The one that is labelled so."""
        self.until(lambda: len(self.masters()) == 1, "there is a master")
        return self.masters()[0]

    def epoch(self) -> int:
        """Of the register."""
        return int(self._api.get(LEASE)["spec"]["leaseTransitions"])

    def node_of(self, pod: str) -> str:
        """Its name."""
        return str(self._api.get(f"{PODS}/{pod}")["spec"]["nodeName"])

    def members(self) -> list[Document]:
        """The brokers' pods."""
        labels = "gantrymq.io/cluster%3Dorders,gantrymq.io/component%3Dbroker"
        return list(self._api.get(f"{PODS}?labelSelector={labels}")["items"])

    def uids(self) -> set[str]:
        """Of the brokers' pods."""
        return {str(each["metadata"]["uid"]) for each in self.members()}

    def until_rolled(self, before: set[str]) -> None:
        """Until nobody of `before` is left; more patience than for one step."""
        for left in reversed(range(MEMBERS)):
            self.until(lambda: len(before & self.uids()) <= left, f"{left} are left")  # noqa: B023
        self.until(lambda: len(self.in_sync()) == MEMBERS and self.is_ready(), "all are in sync again")

    # Clients

    def kubectl(self, *arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        """What it did."""
        words = self.cluster.kubectl(*arguments)
        return subprocess.run(words, input=given, capture_output=True, text=True, timeout=_COMMAND_S, check=False)

    def client(self, *arguments: str) -> str:
        """`gantry` in the client's pod; it must work."""
        done = self.kubectl("exec", "-n", "clients", "client", "--", "gantry", *arguments, "--namesrv", NAMES)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def consumed(self, group: str, topic: str = "tea") -> list[str]:
        """The bodies that a group gets until nothing more comes."""
        rows = self.client("consume", topic, "--group", group, "--idle", "8", "--output", "json").splitlines()
        return [str(json.loads(row)["body"]) for row in rows]

    def move_client(self) -> None:
        """Its pod is made again on a node that has no broker; ledgers go."""
        taken = {each["spec"]["nodeName"] for each in self.members()}
        pod = next(each for each in yaml.safe_load_all(CLIENT) if each["kind"] == "Pod")
        pod["spec"]["nodeName"] = next(each.name for each in self.cluster.nodes if each.name not in taken)
        path = "/api/v1/namespaces/clients/pods/client"
        self._api.delete(path)
        self.until(lambda: not self.is_ready(path), "the client is gone")
        self._api.apply(yaml.safe_dump(pod))
        self.until(lambda: self.is_ready(path), "the client is ready")

    def end_at_once(self, pod: str) -> None:
        """Without a time to drain or to hand over."""
        done = self.kubectl("delete", "pod", "-n", HOME, pod, "--grace-period=0", "--force")
        assert done.returncode == 0, done.stderr

    def producer(
        self, book: str, prefix: str, seconds: int, topic: str = "tea", pause_ms: float = 5.0
    ) -> subprocess.Popen[str]:
        """A producer in the client's pod, for so long; its ledger is the file `book` there."""
        script = (Path(__file__).parents[1] / "ledgerproducer.py").read_text()
        bounded = ("timeout", str(seconds), "python3", "-", NAMES, topic, prefix, book, str(pause_ms))
        words = self.cluster.kubectl("exec", "-i", "-n", "clients", "client", "--", *bounded)
        producer = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True
        )
        assert producer.stdin is not None
        producer.stdin.write(script)
        producer.stdin.close()
        return producer

    def until_producing(self, book: str) -> None:
        """Until some messages are acknowledged."""
        self.until(lambda: len(self.ledger(book)) > 50, "messages are acknowledged")

    def stop_producers(self) -> None:
        """They end before their time, after what is under way."""
        self.kubectl("exec", "-n", "clients", "client", "--", "python3", "-c", _STOP)

    def ledger(self, book: str, pod: str = "client", last: int = 10_000_000) -> dict[str, int]:
        """body -> milliseconds, of what was acknowledged, or of the last of it."""
        said = self.kubectl("exec", "-n", "clients", pod, "--", "tail", "-n", str(last), book).stdout.split()
        rows = [row.split(",") for row in said]
        return {row[0]: int(row[1]) for row in rows if len(row) == ROW}  # the last one may still be in the making

    def report(self, book: str, group: str) -> None:
        """Print the longest pause; everything acknowledged must come to a new group."""
        rows = self.ledger(book)
        times = sorted(rows.values())
        pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
        print(f"{len(rows)} acknowledged, longest pause {max(pauses) / 1000:.1f} s")
        missing = set(rows) - set(self.consumed(group))
        assert not missing, f"{len(missing)} of {len(rows)} acknowledged messages are lost"

    def trouble(self) -> str:
        """What a person would look at."""
        asked = [
            ("get", "pods", "-A", "-o", "wide"),
            ("get", "events", "-n", HOME, "--sort-by=.lastTimestamp"),
            ("get", "leases,bc", "-n", HOME, "-o", "yaml"),
            ("logs", "-n", SYSTEM, "-l", "app.kubernetes.io/name=gantrymq", "--tail=60", "--prefix"),
            ("logs", "-n", SYSTEM, "deployment/gantrymq", "--tail=60", "--previous"),
            *(("logs", "-n", HOME, f"orders-b0-{ordinal}", "--tail=30") for ordinal in range(MEMBERS)),
        ]
        return "\n".join(self.kubectl(*each).stdout for each in asked)


def example() -> Document:
    """The chart's example, of a size for tests."""
    document: Document = yaml.safe_load((CHART / "examples" / "orders.yaml").read_text())
    document["metadata"]["namespace"] = HOME
    brokers = document["spec"]["brokers"]
    brokers["config"] = SMALL
    brokers["storage"] = {"size": "1Gi", "storageClassName": "local"}
    brokers["failover"] = {"timers": "fast"}
    brokers["antiAffinity"] = "Required"
    return document
