"""Reading a BrokerCluster of another definition than this operator's, with missing, unknown or ill-typed fields; pure.

An upgrade brings the operator first and the definitions later, or the other way round.  The API server then hands out
objects without keys that the operator knows, and with keys and values that it does not.  Each value is compared with
this operator's own definition (`schema`):

    a key is missing            its default, as the API server would have put it in
    a key is not known          left out
    a value is not known, or    a fault, which names the key; its default stands in for it, and the careful one where
    is of another type          the default would let a failover do more (`_CAREFUL`)

`groups` and `replicasPerGroup` have no default here: a cluster that lacks them has more than one group all the same, so
they are taken from what is there (`counted`).  Bounds are left to the API server, which may know wider ones.

A reading with faults is used for failover loops and for the status (`LenientCluster`).  Nothing is applied from it.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from gantry_operator.api import brokercluster
from gantry_operator.api.brokercluster import BrokerCluster
from gantry_operator.api.brokerfields import REPLICAS_MAX, SECONDS, TIME
from gantry_operator.api.schema import definition

_COUNTS = frozenset({"spec.brokers.groups", "spec.brokers.replicasPerGroup"})
_CAREFUL = {"spec.brokers.failover.fastPath": "Never", "spec.brokers.failover.afterTotalPowerLoss": "Manual"}
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": Mapping, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float),
}  # fmt: skip
_SHOWN_CHARS_MAX, _NAMED_MAX = 40, 5
_MISSING = object()
HINT = (
    "nothing is changed until it can be read, and failover goes on; bring the definitions and the operator to one "
    "version (helm upgrade with crds.upgrade=true), or change the value"
)


class LenientCluster(NamedTuple):
    """A cluster as far as it can be read, and the faults of the rest."""

    cluster: BrokerCluster
    faults: tuple[str, ...]  # each names its key; empty: everything was read
    has_counts: bool  # `groups` and `replicasPerGroup` were read

    @property
    def message(self) -> str:
        """Return the faults and what to do, as a text for users."""
        more = f"; and {len(self.faults) - _NAMED_MAX} more" if len(self.faults) > _NAMED_MAX else ""
        return f"{'; '.join(self.faults[:_NAMED_MAX])}{more}; {HINT}"


def read(document: Mapping[str, Any]) -> BrokerCluster:
    """Read an object, with defaults for missing fields; ValueError that names every key with a fault."""
    found = read_leniently(document)
    if found.faults:
        raise ValueError(found.message)
    return found.cluster


def read_leniently(document: Mapping[str, Any]) -> LenientCluster:
    """Read any object that has a name, a uid and a generation; ValueError for one without."""
    faults: dict[str, str] = {}
    given = document.get("spec")
    spec = _read(_spec(), given if isinstance(given, Mapping) else {}, "spec", faults)
    cluster = brokercluster.read({**document, "spec": spec})
    return LenientCluster(cluster, tuple(faults.values()), not _COUNTS & faults.keys())


def counted(reading: LenientCluster, names: Iterable[str], replicas: Iterable[int]) -> BrokerCluster:
    """Return the cluster with the numbers of groups and members that exist, where the specification lacks them.

    `names` are those of the cluster's StatefulSets, Leases and pods; `replicas` what its sets are told to have.
    """
    if reading.has_counts:
        return reading.cluster
    cluster = reading.cluster
    found = [each for name in names if (each := re.fullmatch(_NAME.format(re.escape(cluster.key.name)), name))]
    groups = max((int(each[1]) + 1 for each in found), default=0)
    members = max([1, *replicas, *(int(each[2]) + 1 for each in found if each[2])])
    brokers = replace(cluster.brokers, groups=groups, replicas=min(members, REPLICAS_MAX))
    return replace(cluster, brokers=brokers)


_NAME = r"{}-b(\d{{1,3}})(?:-(\d{{1,2}}))?"


@cache
def _spec() -> Mapping[str, Any]:
    (version,) = definition()["spec"]["versions"]
    found: Mapping[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def _read(field: Mapping[str, Any], given: Any, path: str, faults: dict[str, str]) -> Any:
    """Return the value of a field, or its default; `_MISSING` where it has neither."""
    if given is None or given is _MISSING:
        if path in _COUNTS:
            faults[path] = f"{path} is missing"
            return 1
        if "properties" in field and "default" in field:
            return _read(field, {}, path, faults)
        return _default(field)
    fault = _fault(field, given)
    if fault:
        faults[path] = f"{path}: {_shown(given)} {fault}"
        return _CAREFUL.get(path) or _default(field)
    if isinstance(given, Mapping):
        return _object(field, given, path, faults)
    if isinstance(given, list) and "items" in field:
        items = (_read(field["items"], each, f"{path}[{number}]", faults) for number, each in enumerate(given))
        return [each for each in items if each is not _MISSING]
    return copy.deepcopy(given)


def _default(field: Mapping[str, Any]) -> Any:
    return copy.deepcopy(field["default"]) if "default" in field else _MISSING


def _object(field: Mapping[str, Any], given: Mapping[str, Any], path: str, faults: dict[str, str]) -> dict[str, Any]:
    known = field.get("properties", {})
    found = {name: _read(each, given.get(name, _MISSING), f"{path}.{name}", faults) for name, each in known.items()}
    if field.get("x-kubernetes-preserve-unknown-fields"):
        found |= {name: copy.deepcopy(each) for name, each in given.items() if name not in known}
    elif values := field.get("additionalProperties"):
        found |= {name: _read(values, each, f"{path}.{name}", faults) for name, each in given.items()}
    for name in field.get("required", ()):
        if found.get(name, _MISSING) is _MISSING:
            faults[f"{path}.{name}"] = f"{path}.{name} is missing"
    return {name: each for name, each in found.items() if each is not _MISSING}


def _fault(field: Mapping[str, Any], given: Any) -> str:
    """Return why a value is not valid for this field; an empty text when it is."""
    if field.get("x-kubernetes-int-or-string"):
        is_fit = isinstance(given, int | float | str) and not isinstance(given, bool)
        return "" if is_fit else "is neither a number nor a text"
    kind = field.get("type", "")
    wanted = _TYPES.get(kind)
    if wanted is not None and (not isinstance(given, wanted) or (kind != "boolean" and isinstance(given, bool))):
        return f"is no {kind}"
    if "enum" in field and given not in field["enum"]:
        return f"is not known to this operator; it knows {', '.join(map(str, field['enum']))}"
    if kind == "integer" and given < field.get("minimum", given):
        return f"is less than {field['minimum']}"
    if field.get("pattern") in (TIME, SECONDS) and not re.fullmatch(field["pattern"], given):
        return "is no time such as 500ms, 15s or 2m"
    return ""


def _shown(given: Any) -> str:
    said = repr(given)
    return said if len(said) <= _SHOWN_CHARS_MAX else f"{said[:_SHOWN_CHARS_MAX]}..."
