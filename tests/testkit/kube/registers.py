"""What tests of Leases find on a control plane: a namespace, who may do what there, and the chart's admission policy.

    coordinator    makes, reads and changes every Lease of the namespace
    broker         reads and changes the one Lease BROKERS_LEASE, as the role of a group says
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Mapping
from itertools import count

from testkit.kube import binaries
from testkit.kube.api import Api, Document, RefusedError
from testkit.kube.controlplane import ControlPlane
from testkit.sources import ROOT

NAMESPACE = "messaging"
BROKERS_LEASE = "orders-b0"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
LABELS = {"gantrymq.io/cluster": "orders", "gantrymq.io/group": "b0"}
POLICY = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/gantrymq-registers"
PATIENCE_S = 60.0

_NUMBERS = count()
_OBJECTS = f"""
apiVersion: v1
kind: Namespace
metadata: {{name: {NAMESPACE}}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: default, namespace: {NAMESPACE}}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: coordinator, namespace: {NAMESPACE}}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: broker, namespace: {NAMESPACE}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: coordinator, namespace: {NAMESPACE}}}
rules:
- {{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create, get, update, patch]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: broker, namespace: {NAMESPACE}}}
rules:
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{BROKERS_LEASE}]
  verbs: [get, update, patch]
"""
_BINDING = f"""
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: NAME, namespace: {NAMESPACE}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: NAME}}
subjects: [{{kind: ServiceAccount, name: NAME, namespace: {NAMESPACE}}}]
"""


def prepare(plane: ControlPlane) -> None:
    """Put it all there, and wait until the policy is in force."""
    plane.admin.apply(_OBJECTS)
    for name in ("coordinator", "broker"):
        plane.admin.apply(_BINDING.replace("NAME", name))
    plane.admin.apply(rendered("gantrymq", "--skip-tests"))
    until_policed(plane.admin)


def rendered(chart: str, *flags: str) -> str:
    """The chart as helm renders it, under its own name."""
    command = [str(binaries.program("helm")), "template", chart, str(ROOT / "charts" / chart), *flags]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S).stdout


def token(admin: Api, account: str) -> str:
    """A token of a service account, as a pod gets one; valid for an hour."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
    wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    return str(admin.create(path, wanted)["status"]["token"])


def lease(name: str, spec: Mapping[str, object], annotations: Mapping[str, str], labelled: bool = True) -> Document:
    """A Lease as a document."""
    metadata = {"name": name, "labels": LABELS if labelled else {}, "annotations": dict(annotations)}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": dict(spec)}


def fresh_name() -> str:
    """Of a Lease that no other test knows."""
    return f"group-{next(_NUMBERS)}"


def until_policed(admin: Api) -> None:
    """Wait until the server enforces the policy: it reads new ones at its leisure."""
    name = fresh_name()
    admin.create(LEASES, lease(name, {"leaseTransitions": 2}, {}))
    end, pause = time.monotonic() + PATIENCE_S, threading.Event()
    while time.monotonic() < end:
        try:
            admin.merge(f"{LEASES}/{name}", {"spec": {"leaseTransitions": 1}})
        except RefusedError as error:
            assert "ValidatingAdmissionPolicy" in error.message, error
            return
        admin.merge(f"{LEASES}/{name}", {"spec": {"leaseTransitions": 2}})
        pause.wait(0.05)
    raise AssertionError(f"the policy is not in force after {PATIENCE_S} s")
