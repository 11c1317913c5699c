"""A pod as a value: whether it serves, whether its server works, and what keeps it from starting; without any I/O.

The server is the container that the operator made; it has the name of the pod's component, `broker` or `nameserver`.  A
pod is ready with every container; its server may work beside another container that does not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gantry_operator.api.brokercluster import GROUP, LABEL_COMPONENT, LABEL_ROLE
from gantry_operator.api.terms import Terms, parse_terms
from gantry_operator.api.wishes import RECLONE, ROLL

_REVISION = "controller-revision-hash"
_PULLS = frozenset({"ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_TIME = "%Y-%m-%dT%H:%M:%S"


@dataclass(frozen=True, slots=True)
class Pod:
    """The pod of a member or of a name server."""

    name: str
    uid: str
    is_ready: bool  # with every container, and not being deleted
    is_going: bool  # it is being deleted, and its process has its grace period to end
    role: str  # as its label says
    revision: str  # of the template that it was made from
    terms: Terms | None = None
    is_marked: bool = False  # a user requested its replacement
    reclone: str = ""  # the uid in the annotation reclone
    node: str = ""
    is_running: bool = False  # as the kubelet said last
    unready_since: str = ""  # empty: it is ready, or that is not known
    trouble: str = ""  # "image", "volume", "place", "crash": it does not come up by itself
    trouble_since: str = ""
    container: str = ""  # which one is in trouble, where it is not the server's own
    image: str = ""  # of the server's container; a webhook may have put that of a mirror there
    has_server: bool = False  # the server's container is ready, and others of the pod are not
    started_s: float = 0.0  # when the server's container started; 0: not known; infinite: it has yet to start
    asked_image: str = ""  # of its set's template, where it is of the present one

    @property
    def works(self) -> bool:
        """Return whether the server is ready, even if another container of the pod is not."""
        return self.is_ready or self.has_server


def pod_seen(document: Mapping[str, Any]) -> Pod:
    """Read a pod's document; the server's container has the name of the pod's component."""
    about, status, spec = document["metadata"], document.get("status", {}), document.get("spec", {})
    labels, annotations = about.get("labels", {}), about.get("annotations", {})
    conditions, server = status.get("conditions", []), labels.get(LABEL_COMPONENT, "")
    is_going = "deletionTimestamp" in about
    ready: Mapping[str, Any] = next((each for each in conditions if each["type"] == "Ready"), {})
    serves = ready.get("status") == "True"
    containers = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    own = [each for each in containers if each.get("name", server) == server]
    trouble, container, since = _trouble(conditions, containers, server)
    return Pod(
        about["name"],
        about["uid"],
        serves and not is_going,
        is_going,
        labels.get(LABEL_ROLE, ""),
        labels.get(_REVISION, ""),
        parse_terms(annotations.get(f"{GROUP}/terms", "")),
        bool(annotations.get(ROLL)),
        annotations.get(RECLONE, ""),
        spec.get("nodeName", ""),
        any("running" in each.get("state", {}) for each in own),
        "" if serves else ready.get("lastTransitionTime") or "",
        trouble,
        since,
        container,
        next((str(each.get("image", "")) for each in spec.get("containers", []) if each["name"] == server), ""),
        # The kubelet says so of a node that it can reach; of a lost node its controller gives another reason.
        not is_going and ready.get("reason") == "ContainersNotReady" and any(each.get("ready") for each in own),
        min(map(_started_s, own), default=0.0),
    )


def _started_s(container: Mapping[str, Any]) -> float:
    state = container.get("state", {})
    return math.inf if "waiting" in state else seconds_of(state.get("running", {}).get("startedAt") or "")


def _trouble(
    conditions: Sequence[Mapping[str, Any]], containers: Sequence[Mapping[str, Any]], server: str
) -> tuple[str, str, str]:
    """Return the trouble, its container if not the server's, and since when; the server's own trouble first."""
    for each in sorted(containers, key=lambda each: each.get("name", server) != server):
        name, reason = each.get("name", server), each.get("state", {}).get("waiting", {}).get("reason", "")
        found = "image" if reason in _PULLS else "crash" if reason == "CrashLoopBackOff" else ""
        if found:
            return found, "" if name == server else name, ""
    for each in conditions:
        if each["type"] == "PodScheduled" and each["status"] == "False":
            is_volume = "PersistentVolumeClaim" in each.get("message", "")
            return "volume" if is_volume else "place", "", each.get("lastTransitionTime") or ""
    return "", "", ""


def seconds_of(text: str) -> float:
    """Return the seconds since the epoch of a time as Kubernetes writes it; 0 for an empty text."""
    try:
        return datetime.strptime(text[:19], _TIME).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0
