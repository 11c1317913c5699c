"""Tokens of ten minutes for every pod that is made from now on: the shortest that an API server gives.

Pods ask for an hour by themselves, and the server adds a year to that, so nobody would notice a program that never
reads its token again.  A policy changes what they ask for; the kubelet replaces such a token after eight minutes.
"""

from __future__ import annotations

from testkit.kube.cluster import Cluster
from testkit.pairplay import until

SECONDS, PATIENCE_S = 600, 120.0
FOLDER = "/apis/admissionregistration.k8s.io/v1beta1"
NAME = "short-tokens"
_PATH = "/spec/volumes/' + string(i) + '/projected/sources/0/serviceAccountToken/expirationSeconds"
_POLICY = f"""
apiVersion: admissionregistration.k8s.io/v1beta1
kind: MutatingAdmissionPolicy
metadata: {{name: {NAME}}}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
      - {{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}}
  mutations:
    - patchType: JSONPatch
      jsonPatch:
        expression: >
          [0, 1, 2, 3, 4, 5, 6, 7].filter(i, has(object.spec.volumes) && i < size(object.spec.volumes)
          && object.spec.volumes[i].name.startsWith('kube-api-access-'))
          .map(i, JSONPatch{{op: 'replace', path: '{_PATH}', value: {SECONDS}}})
---
apiVersion: admissionregistration.k8s.io/v1beta1
kind: MutatingAdmissionPolicyBinding
metadata: {{name: {NAME}}}
spec: {{policyName: {NAME}}}
"""
_TRIED = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "tried"},
    "spec": {"containers": [{"name": "c", "image": "nobody/runs:this"}]},
}


def apply(cluster: Cluster) -> None:
    """Until it is in force."""
    cluster.admin.apply(_POLICY)
    until(lambda: _asked_for(cluster) == SECONDS, "pods ask for short tokens", PATIENCE_S)


def remove(cluster: Cluster) -> None:
    """For pods that are made from now on."""
    cluster.admin.delete(f"{FOLDER}/mutatingadmissionpolicybindings/{NAME}")
    cluster.admin.delete(f"{FOLDER}/mutatingadmissionpolicies/{NAME}")


def _asked_for(cluster: Cluster) -> int:
    made = cluster.admin.create("/api/v1/namespaces/default/pods?dryRun=All", _TRIED)
    (volume,) = (each for each in made["spec"]["volumes"] if each["name"].startswith("kube-api-access-"))
    return int(volume["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"])
