"""Who wrote what: the audit log of a test cluster's API server, one line for each write that it answered.

The server writes a line before it answers, so anyone who has an answer finds the line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

LOG = "audit.log"
_POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  verbs: [get, list, watch]
- level: None
  resources: [{group: "", resources: [serviceaccounts/token]}, {group: authorization.k8s.io}]
- level: None
  users: ["system:kube-scheduler", "system:kube-controller-manager"]
  resources: [{group: "", resources: [events]}, {group: events.k8s.io}]
- level: None
  userGroups: ["system:nodes", "system:serviceaccounts:kube-system"]
  resources: [{group: "", resources: [events]}, {group: events.k8s.io}]
- level: Request
  verbs: [delete]
  resources: [{group: "", resources: [pods]}]
- level: Metadata
"""


class Write(NamedTuple):
    """One; `token` tells apart who has the same account."""

    user: str
    token: str
    verb: str
    resource: str  # leases, pods/status, ...
    namespace: str
    name: str
    status: int
    at: str  # ISO 8601
    agent: str
    grace_s: int | None = None  # of a pod that is deleted, where somebody said it


def _grace_s(event: dict[str, Any]) -> int | None:
    said = event.get("requestObject", {}).get("gracePeriodSeconds")
    asked = parse_qs(urlsplit(event["requestURI"]).query).get("gracePeriodSeconds", [])
    return int(asked[0]) if asked else said


def flags(folder: Path) -> list[str]:
    """For the API server; writes its policy into the folder."""
    (folder / "audit.yaml").write_text(_POLICY)
    return ["--audit-policy-file=audit.yaml", f"--audit-log-path={LOG}"]


def writes(folder: Path, user: str = "") -> list[Write]:
    """All so far, or one user's, oldest first."""
    lines = (folder / LOG).read_text().splitlines()
    found = [_write(json.loads(line)) for line in lines if line.endswith("}")]  # the last may be in the making
    return [each for each in found if user in ("", each.user)]


def _write(event: dict[str, Any]) -> Write:
    about, user = event.get("objectRef", {}), event["user"]  # nobody's name where nobody was let in
    extra = user.get("extra") or {}
    assert isinstance(extra, dict)
    parts = [str(about[key]) for key in ("resource", "subresource") if key in about]
    token = "".join(extra.get("authentication.kubernetes.io/credential-id", []))
    status = event.get("responseStatus", {}).get("code", 0)
    assert isinstance(status, int)
    return Write(
        str(user.get("username", "")), token, str(event["verb"]), "/".join(parts), str(about.get("namespace", "")),
        str(about.get("name", "")), status, str(event["requestReceivedTimestamp"]), str(event.get("userAgent", "")),
        _grace_s(event),
    )  # fmt: skip
