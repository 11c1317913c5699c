"""Spark jobs beside the cluster `orders`, on real kubelets: the spark-operator, the image, the manifests, a reader.

Manifests are applied as they lie in spark/kubernetes; `changed` replaces words in them, each of which has to be there.
The reader is a pod of the image that mounts the jobs' volume: what Spark's file sink counts as written is read there,
by the list that the sink keeps, so that files of a batch that was never committed do not count.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import yaml

from testkit.kube import projectimages, sparkoperator
from testkit.kube.api import Document, RefusedError
from testkit.kube.orders import Orders
from testkit.kube.sparkmanifests import FOLDER, JOBS_NAMESPACE
from testkit.pairplay import until
from testkit.sources import ROOT

SINGLE = "spark-single"  # for a claim that one node alone can mount
WITHIN_S = 600.0
APPLICATIONS = "sparkapplications"
_READ = """
import json, pathlib, sys
import pyarrow.parquet as parquet
folder = pathlib.Path(sys.argv[1])
files = {}
for log in sorted((folder / "_spark_metadata").glob("[0-9]*"), key=lambda path: int(path.stem)):
    for line in log.read_text().splitlines()[1:]:
        entry = json.loads(line)
        files[entry["path"]] = entry["action"]
for path, action in files.items():
    assert action == "add", (path, action)
    for row in parquet.ParquetFile(path.removeprefix("file://")).read(["body", "queueId", "queueOffset"]).to_pylist():
        print(json.dumps([row["body"].decode(), row["queueId"], row["queueOffset"]]))
"""


class SparkJobs:
    """See the module."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self._api = orders.cluster.admin

    def install(self) -> None:
        """Images on every node, the spark-operator, both namespaces."""
        spark = projectimages.name(projectimages.SPARK)
        self.orders.cluster.load([projectimages.tar(projectimages.SPARK), sparkoperator.tar()])
        wanted = yaml.safe_load((ROOT / "charts/gantrymq-cluster/values.yaml").read_text())["spark"]["image"]
        for node in self.orders.cluster.nodes:
            node.run("ctr", "-n", "k8s.io", "image", "tag", "--force", spark, wanted)
        for namespace in (JOBS_NAMESPACE, SINGLE):
            self._api.apply(f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}")
        sparkoperator.install(self.orders.cluster, JOBS_NAMESPACE, SINGLE)
        self.until(self._is_served, "the spark-operator works")

    def apply(self, name: str, changed: dict[str, str] | None = None) -> None:
        """`kubectl apply` of a manifest."""
        text = (FOLDER / name).read_text()
        for former, new in (changed or {}).items():
            assert former in text, f"{name} does not say {former}"
            text = text.replace(former, new)
        done = self.orders.kubectl("apply", "-f", "-", given=text)
        assert done.returncode == 0, done.stdout + done.stderr

    def delete(self, kind: str, name: str, namespace: str = JOBS_NAMESPACE) -> None:
        """And wait until it is gone."""
        done = self.orders.kubectl("delete", kind, name, "-n", namespace, "--timeout=120s")
        assert done.returncode == 0, done.stdout + done.stderr

    def status(self, kind: str, name: str, namespace: str = JOBS_NAMESPACE) -> Document:
        """Of an application; empty while there is none."""
        path = f"/apis/sparkoperator.k8s.io/v1beta2/namespaces/{namespace}/{kind}/{name}"
        found: Document = self._api.get(path).get("status", {})
        return found

    def state(self, name: str, namespace: str = JOBS_NAMESPACE) -> str:
        """RUNNING, COMPLETED, FAILED, ..."""
        return str(self.status(APPLICATIONS, name, namespace).get("applicationState", {}).get("state", ""))

    def pods(self, application: str, role: str, namespace: str = JOBS_NAMESPACE) -> list[Document]:
        """Those that run."""
        labels = f"sparkoperator.k8s.io/app-name%3D{application},spark-role%3D{role}"
        found = self._api.get(f"/api/v1/namespaces/{namespace}/pods?labelSelector={labels}")["items"]
        return [each for each in found if each["status"].get("phase") == "Running"]

    def log(self, pod: str, namespace: str = JOBS_NAMESPACE) -> str:
        """What it has said."""
        return self.orders.kubectl("logs", pod, "-n", namespace).stdout

    def until(self, holds: Callable[[], object], what: str) -> None:
        """Until something is so; shows what a person would look at when it does not come."""
        try:
            until(holds, what, WITHIN_S)
        except AssertionError:
            print(self.trouble())
            raise

    def trouble(self) -> str:
        """Pods, events, applications, and what drivers and the spark-operator say."""
        asked = [
            ("get", "pods", "-A", "-o", "wide"),
            ("get", "events", "-A", "--sort-by=.lastTimestamp"),
            ("get", "sparkapplications,scheduledsparkapplications", "-A", "-o", "yaml"),
            ("logs", "-n", sparkoperator.SYSTEM, "deployment/spark-operator-controller", "--tail=40"),
            ("get", "pods", "-A", "--field-selector=status.phase=Pending", "-o", "yaml"),
            *[("logs", "-n", name, "-l", "spark-role", "--tail=2000", "--prefix") for name in (JOBS_NAMESPACE, SINGLE)],
        ]
        found = [self.orders.kubectl(*each).stdout.splitlines() for each in asked]
        # Spark's own progress is longer than everything else.
        return "\n".join("\n".join(line for line in lines if " INFO " not in line)[-8000:] for lines in found)

    def read(self) -> None:
        """The reader, until it is ready."""
        image = projectimages.name(projectimages.SPARK)
        container: dict[str, Any] = {"name": "reader", "image": image}
        container["args"] = ["python", "-c", "import signal; signal.sigwait([signal.SIGTERM])"]
        container["volumeMounts"] = [{"name": "work", "mountPath": "/spark"}]
        volume = {"name": "work", "persistentVolumeClaim": {"claimName": "orders-spark"}}
        spec = {"containers": [container], "volumes": [volume], "terminationGracePeriodSeconds": 0}
        about = {"name": "reader", "namespace": JOBS_NAMESPACE}
        self._api.apply(yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}))
        path = f"/api/v1/namespaces/{JOBS_NAMESPACE}/pods/reader"
        self.until(lambda: self.orders.is_ready(path), "the reader is ready")

    def inside(self, *words: str, given: str | None = None) -> str:
        """A command in the reader; empty when it fails, as it does while there is nothing to read."""
        interactive = ("-i",) if given is not None else ()
        run = ("exec", *interactive, "-n", JOBS_NAMESPACE, "reader", "--", *words)
        done = self.orders.kubectl(*run, given=given)
        return done.stdout if done.returncode == 0 else ""

    def archived(self) -> list[tuple[str, int, int]]:
        """Body, queue and offset of every row of the archive."""
        said = self.inside("python", "-", "/spark/orders/archive", given=_READ)
        return [(str(body), int(queue), int(offset)) for body, queue, offset in map(json.loads, said.splitlines())]

    def _is_served(self) -> bool:
        """The kinds are, and a rehearsal passes the operator's webhooks."""
        text = (FOLDER / "archive.yaml").read_text()
        try:
            return bool(self._api.apply(text, is_rehearsal=True))
        except (KeyError, RefusedError):
            return False
