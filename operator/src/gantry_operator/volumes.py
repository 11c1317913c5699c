"""Finding volumes that differ from the specification; pure.

A volume claim is made once, for a member that has none.  It keeps its size, class and access mode whatever is asked for
later, also when the cluster is deleted with `deletionPolicy: Retain` and applied again with other storage.  Larger is
no difference, and neither is any class where the specification names none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from gantry_operator.api.brokercluster import BrokerCluster

_QUANTITY = re.compile(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)(m|[kMGTPE]|[KMGTPE]i|)", re.ASCII)
_POWERS = "KMGTPE"


def differing(cluster: BrokerCluster, claims: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a text for each differing claim of a wanted member, by group and ordinal: `NAME has ..., not ...`."""
    storage, said = cluster.brokers.storage, []
    for group in cluster.groups():
        for ordinal in range(cluster.brokers.replicas):
            claim = claims.get(group.claim(ordinal))
            if claim is None:
                continue
            spec = claim.get("spec", {})
            size = spec.get("resources", {}).get("requests", {}).get("storage", "0")
            here = claim.get("status", {}).get("capacity", {}).get("storage", "0")
            found, wanted = [], []
            if max(amount(size), amount(here)) < amount(storage.size):
                found.append(size)
                wanted.append(storage.size)
            if storage.storage_class and spec.get("storageClassName", "") != storage.storage_class:
                found.append(f"class {spec.get('storageClassName') or '(none)'}")
                wanted.append(f"class {storage.storage_class}")
            if storage.access_mode not in spec.get("accessModes", []):
                found.append("/".join(spec.get("accessModes", [])))
                wanted.append(storage.access_mode)
            if found:
                said.append(f"{group.claim(ordinal)} has {', '.join(found)}, not {', '.join(wanted)}")
    return said


def amount(quantity: str) -> Decimal:
    """Return the bytes of a Kubernetes quantity such as 10Gi, 1e9 or 500M; ValueError for any other text."""
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        raise ValueError(f"{quantity!r}: expected a quantity such as 10Gi")
    number, unit = Decimal(match[1]), match[2]
    if unit == "m":
        return number / 1000
    if not unit:
        return number
    base = 1024 if unit.endswith("i") else 1000
    return number * Decimal(base) ** (_POWERS.index(unit[0].upper()) + 1)
