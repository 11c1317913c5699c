"""The test bed itself: four real kubelets do what the suites above them rely on.

Pods spread, names and services lead to them across nodes, volumes stay with their node, and a node that is cut off is
noticed while everything on it goes on running: that is the fault that other ways of testing do not have.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest

from testkit.kube import images
from testkit.kube.api import Document
from testkit.kube.cluster import Cluster, condition
from testkit.pairplay import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WEB = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: None, publishNotReadyAddresses: true, selector: {app: web}, ports: [{port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: front}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  replicas: 3
  serviceName: web
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 3
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}
      containers:
        - name: web
          image: IMAGE
          imagePullPolicy: Never
          command: [sh, -c, "date >>/data/starts; exec python3 -m http.server 8080 -d /data"]
          readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
          volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
    - metadata: {name: data}
      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 100Mi}}, storageClassName: local}
""".replace("IMAGE", images.BASE)
PODS = "/api/v1/namespaces/default/pods"
FETCH = """
import sys, urllib.request
for address in sys.argv[1:]:
    print(urllib.request.urlopen(f"http://{address}/", timeout=5).status)
"""


@pytest.fixture(scope="module")
def web(cluster: Cluster) -> Iterator[Cluster]:
    cluster.admin.apply(WEB)
    until(lambda: len(ready(cluster)) == 3, "three pods are ready")
    yield cluster
    cluster.admin.delete("/apis/apps/v1/namespaces/default/statefulsets/web")


def pods(cluster: Cluster) -> dict[str, Document]:
    found = cluster.admin.get(f"{PODS}?labelSelector=app%3Dweb")["items"]
    return {each["metadata"]["name"]: each for each in found}


def ready(cluster: Cluster) -> set[str]:
    return {name for name, pod in pods(cluster).items() if condition(pod, "Ready") == "True"}


def places(cluster: Cluster) -> dict[str, str]:
    return {name: str(pod["spec"]["nodeName"]) for name, pod in pods(cluster).items()}


def tried(cluster: Cluster, pod: str, *command: str) -> subprocess.CompletedProcess[str]:
    words = cluster.kubectl("exec", pod, "--", *command)
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)


def execute(cluster: Cluster, pod: str, *command: str) -> str:
    done = tried(cluster, pod, *command)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_pods_spread_and_their_volumes_stay_with_their_nodes(web: Cluster) -> None:
    where = places(web)
    assert len(set(where.values())) == 3
    volumes = web.admin.get("/api/v1/persistentvolumes")["items"]
    bound = {
        each["spec"]["claimRef"]["name"]: each["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        for each in volumes
    }
    for pod, node in where.items():
        assert bound[f"data-{pod}"][0]["matchExpressions"][0]["values"] == [node]


def test_names_and_services_lead_to_pods_of_other_nodes(web: Cluster) -> None:
    names = [*(f"web-{number}.web.default.svc.cluster.local:8080" for number in range(3)), "front", "front.default.svc"]
    until(lambda: tried(web, "web-0", "python3", "-c", FETCH, *names).stdout.split() == ["200"] * 5, "all answer")


def test_a_pod_that_was_deleted_comes_back_with_its_volume(web: Cluster) -> None:
    before = pods(web)["web-2"]["metadata"]["uid"]
    web.admin.delete(f"{PODS}/web-2")
    until(lambda: "web-2" in ready(web) and pods(web)["web-2"]["metadata"]["uid"] != before, "web-2 is back")
    assert len(execute(web, "web-2", "cat", "/data/starts").splitlines()) >= 2


def test_a_node_that_is_cut_off_is_noticed_and_goes_on_running(web: Cluster) -> None:
    place = places(web)["web-1"]
    node = next(each for each in web.nodes if each.name == place)
    address = pods(web)["web-1"]["status"]["podIP"]
    start = time.monotonic()
    web.network.partition(node.index)
    try:
        until(lambda: place not in web.ready_nodes(), "the node is not ready")
        print(f"not ready {time.monotonic() - start:.1f} s after the cut")
        assert node.run("python3", "-c", FETCH, f"{address}:8080").split() == ["200"]
    finally:
        web.network.heal(node.index)
    start = time.monotonic()
    until(lambda: place in web.ready_nodes(), "the node is ready again")
    print(f"ready {time.monotonic() - start:.1f} s after the cut was over")


def test_a_node_without_power_comes_back_with_its_disk(web: Cluster) -> None:
    place = places(web)["web-0"]
    node = next(each for each in web.nodes if each.name == place)
    starts = execute(web, "web-0", "cat", "/data/starts")
    node.power_off()
    until(lambda: place not in web.ready_nodes(), "the node is not ready")
    node.power_on()
    node.load([])
    node.join()
    until(lambda: place in web.ready_nodes(), "the node is ready again")
    until(lambda: len(ready(web)) == 3, "three pods are ready")
    assert execute(web, "web-0", "cat", "/data/starts").startswith(starts)
