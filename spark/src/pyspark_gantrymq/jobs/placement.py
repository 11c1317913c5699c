"""On Kubernetes: checks that every executor can write where the driver keeps its checkpoint.

Executors write state and files beside the driver's offsets.  A volume that one node alone can mount (a claim without
ReadWriteMany) is enough only while all of them are on that node.  Otherwise Kubernetes leaves executors waiting for a
volume that they never get, or, with folders of nodes, gives each node a folder of its own: the job hangs, or loses
data.  So a job checks this at the start, once its executors have been placed, and ends with an error text.

It reads, with the pod's own account: its pod, the claims that it mounts, the pods of its executors (the role in
spark/kubernetes/rights.yaml).  With ReadWriteMany claims that is two requests.  Without the right to read, it prints a
warning and goes on.  Executors that start later, in place of a lost one, are not checked.
"""

from __future__ import annotations

import json
import ssl
import sys
import time
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote

Document = dict[str, Any]
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
LAST_WORDS = Path("/dev/termination-log")  # what `kubectl describe pod` shows of a container that ended
TIMEOUT_S = 10.0
PATIENCE_S = 60.0  # with a server that does not answer
PLACED_S = 120.0  # how long executors may take to be placed before the job goes on without having seen it
PAUSE_S = 1.0
_MANY = "ReadWriteMany"
_TOO_MANY = 429


class PlacementError(Exception):
    """An executor is on a node that cannot mount the driver's volume."""


@dataclass(frozen=True, slots=True)
class Api:
    """The API server, as a pod reaches it."""

    server: str
    account: Path = ACCOUNT

    def get(self, path: str) -> Document:
        """Return a document; OSError when that is not possible.  A busy server is asked again for PATIENCE_S."""
        token = (self.account / "token").read_text().strip()
        request = urllib.request.Request(f"{self.server}{path}", headers={"Authorization": f"Bearer {token}"})
        trust = ssl.create_default_context(cafile=str(self.account / "ca.crt"))
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=trust) as answer:
                    found: Document = json.load(answer)
                    return found
            except OSError as error:
                is_final = False
                if isinstance(error, HTTPError):
                    error.close()  # it is an answer, and has a connection
                    is_final = error.code < 500 and error.code != _TOO_MANY
                if is_final or time.monotonic() >= until:
                    raise
            time.sleep(PAUSE_S)


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver's pod, and the labels of its executors."""

    namespace: str
    pod: str
    application: str
    executors: int


def check(spark: Any, environment: Mapping[str, str]) -> None:
    """Check the executors of a session; PlacementError when one cannot share the driver's volumes."""
    settings = spark.sparkContext.getConf()
    if not settings.get("spark.master", "").startswith("k8s://") or not (ACCOUNT / "token").exists():
        return
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
    driver = Driver(
        settings.get("spark.kubernetes.namespace"),
        settings.get("spark.kubernetes.driver.pod.name"),
        spark.sparkContext.applicationId,
        int(settings.get("spark.executor.instances", "1")),
    )
    api = Api(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}")
    try:
        look(api, driver)
    except PlacementError as error:
        if LAST_WORDS.exists():
            LAST_WORDS.write_text(f"{error}\n")
        raise
    except (OSError, KeyError) as error:  # what HTTP has to refuse is an OSError
        print(f"cannot see whether executors share the driver's volumes: {error}", file=sys.stderr, flush=True)


def look(api: Api, driver: Driver, within_s: float = PLACED_S) -> None:
    """Check by the API server until each executor has its node, `within_s` seconds at most."""
    pods = f"/api/v1/namespaces/{driver.namespace}/pods"
    own = api.get(f"{pods}/{driver.pod}")
    claims = {name: api.get(_claim(driver, name)) for name in sorted(mounted(own))}
    single = {name for name, claim in claims.items() if _MANY not in claim["spec"]["accessModes"]}
    if not single:
        return
    selector = quote(f"spark-app-selector={driver.application},spark-role=executor")
    until = time.monotonic() + within_s
    while True:
        executors = api.get(f"{pods}?labelSelector={selector}")["items"]
        found = complaint(own, single, executors)
        if found:
            raise PlacementError(found)
        if sum(bool(each["spec"].get("nodeName")) for each in executors) >= driver.executors:
            return
        if time.monotonic() >= until:
            print("not every executor has been placed yet; going on", file=sys.stderr, flush=True)
            return
        time.sleep(PAUSE_S)


def complaint(driver: Document, single: set[str], executors: Iterable[Document]) -> str:
    """Say what is wrong with the nodes of executors that mount one of the claims `single`; empty: nothing."""
    home = driver["spec"]["nodeName"]
    for each in executors:
        shared = sorted(mounted(each) & single)
        if not shared:
            continue
        node, name = each["spec"].get("nodeName", ""), each["metadata"]["name"]
        if node and node != home:
            where = f"is on node {node}"
        elif not node and "volume" in _unplaced(each).lower():
            where = "finds no node that can mount it"
        else:
            continue
        return (
            f"the volume claim {shared[0]} is not ReadWriteMany, and executor {name} {where} while the driver is on"
            f" node {home}: give the claim the access mode ReadWriteMany and a storage class that can do it, or keep"
            " driver and executors on one node with spec.nodeSelector of the SparkApplication"
        )
    return ""


def mounted(pod: Document) -> set[str]:
    """Return the names of a pod's volume claims."""
    found = (each.get("persistentVolumeClaim") for each in pod["spec"].get("volumes", ()))
    return {each["claimName"] for each in found if each}


def _unplaced(pod: Document) -> str:
    """Return why the scheduler found no node for the pod."""
    found = [each for each in pod.get("status", {}).get("conditions", ()) if each["type"] == "PodScheduled"]
    return "".join(str(each.get("message", "")) for each in found if each["status"] == "False")


def _claim(driver: Driver, name: str) -> str:
    return f"/api/v1/namespaces/{driver.namespace}/persistentvolumeclaims/{name}"
