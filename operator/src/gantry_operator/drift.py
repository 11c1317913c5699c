"""Whether an owned object still is what the operator applied; pure.

Three questions, each of which finds what the two others miss:

    digest      does the object carry the digest of what is wanted now?   finds a change of the specification
    values      has every field that is wanted its value?                 finds an edit, also one that removes something
    ownership   does another field manager own part of the specification? finds an edit that adds something

The API server fills in defaults, which belong to no field manager, so additional fields are judged only by their
owner.  Metadata of other managers (labels, annotations, finalizers) is ignored, and so are `status` and the secrets
that a platform adds to a ServiceAccount.  An apply sets wanted values, and cannot remove what another manager added:
`taken_over` gives those fields to the operator first, and the next apply removes them, since it does not contain
them.

Normative: Kubernetes' structured-merge-diff (`fieldsV1`), and the ADR on owned objects in broker/docs/adr.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from gantry_operator.api.brokercluster import FIELD_MANAGER, LABEL_GROUP, BrokerCluster, Document
from gantry_operator.api.doorspec import DOORS, DoorKind
from gantry_operator.desired.labels import APPLIED, digest_of, of_door
from gantry_operator.snapshot import Snapshot

_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([KMGTPE])i|([numkMGTPE])|[eE]([+-]?\d+))?")
_QUANTITIES = ("resources", "sizeLimit", "divisor")  # fields that hold them
_FIELDS_MAX = 3  # that a text names
# Not judged by owner: metadata and status of every object; what platforms add to each ServiceAccount (OpenShift's
# controller of pull secrets does), and would add again.
_LEFT_TO_OTHERS = frozenset({"f:metadata", "f:status", "f:secrets", "f:imagePullSecrets"})
_VOLATILE = ("resourceVersion", "generation", "managedFields")


class Difference(NamedTuple):
    """An object that is to be applied; `there` is None when it does not exist."""

    wanted: Document
    there: Document | None
    is_drift: bool = False  # it carries the digest of what is wanted: another program changed it
    fields: Sequence[str] = ()  # that differ or belong to another manager, such as spec.ingress
    managers: Sequence[str] = ()  # field managers that own part of the specification

    @property
    def name(self) -> str:
        """Return kind and name of the object, for texts."""
        return f"{self.wanted['kind']} {self.wanted['metadata']['name']}"

    @property
    def said(self) -> str:
        """Return a text that names the fields that differ and who changed them."""
        fields = sorted(set(self.fields))
        more = f" and {len(fields) - _FIELDS_MAX} more" if len(fields) > _FIELDS_MAX else ""
        by = f" by {', '.join(self.managers)}" if self.managers else ""
        return f"{self.name}: {', '.join(fields[:_FIELDS_MAX])}{more}{by}"


def difference(wanted: Document, there: Document | None) -> Difference | None:
    """Compare an object as wanted, with its digest (`labels.stamped`), and as it is; None: nothing to do."""
    if there is None:
        return Difference(wanted, None)
    metadata = wanted["metadata"]
    judged = {key: each for key, each in wanted.items() if key not in ("apiVersion", "kind", "metadata")}
    judged["metadata"] = {"labels": metadata["labels"], "ownerReferences": metadata["ownerReferences"]}
    foreign = _foreign(there)
    fields = [*_differing(judged, there), *(path for _, path in foreign)]
    is_same = there["metadata"].get("annotations", {}).get(APPLIED) == metadata["annotations"][APPLIED]
    if is_same and not fields:
        return None
    return Difference(wanted, there, is_same, fields, sorted({name for name, _ in foreign}))


def leftover(batches: Iterable[Iterable[Document]], there: Mapping[str, Document], snapshot: Snapshot) -> list[str]:
    """Paths of ConfigMaps that no pod uses any more: of groups whose pods are all there and of the present template."""
    wanted = {each["metadata"]["name"] for batch in batches for each in batch if each["kind"] == "ConfigMap"}
    wanted |= {name for made in snapshot.sets.values() for name in _mounted(made)}  # also where an apply was refused
    settled = {
        seen.group.short
        for seen in snapshot.groups
        if seen.revision and not seen.outdated and len(seen.pods) == seen.replicas
    }
    found = []
    for path, each in there.items():
        about = each["metadata"]
        is_owned = any(owner["uid"] == snapshot.cluster.uid for owner in about.get("ownerReferences", []))
        is_old = each["kind"] == "ConfigMap" and is_owned and about["name"] not in wanted
        if is_old and about["labels"].get(LABEL_GROUP) in settled:
            found.append(path)
    return sorted(found)


def removed_doors(there: Mapping[str, Document], cluster: BrokerCluster) -> list[str]:
    """Paths of the objects of doors that the specification has no more.

    The Service goes when the Deployment is gone: while a Service is there, the next pass looks for a Deployment.
    """
    wanted = [each.kind for each in cluster.doors]
    return [path for kind in DOORS if kind not in wanted for path in _of_door(there, cluster, kind)]


def _of_door(there: Mapping[str, Document], cluster: BrokerCluster, kind: DoorKind) -> list[str]:
    ours = {
        path: each["kind"]
        for path, each in there.items()
        if each["metadata"].get("labels", {}).items() >= of_door(cluster, kind).items()
        if any(owner["uid"] == cluster.uid for owner in each["metadata"].get("ownerReferences", []))
    }
    has_deployment = "Deployment" in ours.values()
    return sorted(path for path, kind in ours.items() if not (has_deployment and kind == "Service"))


def _mounted(made: Mapping[str, Any]) -> list[str]:
    volumes = made["spec"]["template"]["spec"].get("volumes", [])
    return [str(each["configMap"]["name"]) for each in volumes if "configMap" in each]


def taken_over(there: Mapping[str, Any]) -> list[Document]:
    """`metadata.managedFields` by which every field outside metadata and status belongs to the operator's applies."""
    entries: list[Document] = copy.deepcopy(there["metadata"].get("managedFields", []))
    mine: Document = {"f:metadata": {}}
    others: list[Document] = []
    for each in entries:
        fields = each.get("fieldsV1", {})
        if _is_ours(each):
            _join(mine, fields)
        elif each.get("subresource") == "status":
            others.append(each)
        else:
            _join(mine, {key: held for key, held in fields.items() if key not in _LEFT_TO_OTHERS})
            kept = {key: held for key, held in fields.items() if key in _LEFT_TO_OTHERS}
            others += [each | {"fieldsV1": kept}] if kept else []
    ours = {"manager": FIELD_MANAGER, "operation": "Apply", "apiVersion": there["apiVersion"]}
    return [ours | {"fieldsType": "FieldsV1", "fieldsV1": mine}, *others]


def content(there: Mapping[str, Any]) -> str:
    """Return the digest of an object without its status and the server's counters."""
    about = {key: each for key, each in there["metadata"].items() if key not in _VOLATILE}
    return digest_of({key: each for key, each in there.items() if key != "status"} | {"metadata": about})


def _differing(wanted: object, there: object, path: str = "") -> Iterator[str]:
    """Yield the paths of wanted values that differ; an empty value may be missing."""
    if isinstance(wanted, Mapping) and isinstance(there, Mapping):
        for key, each in wanted.items():
            yield from _differing(each, there.get(key), f"{path}.{key}" if path else key)
    elif isinstance(wanted, list) and isinstance(there, list) and len(wanted) == len(there):
        for number, (one, other) in enumerate(zip(wanted, there, strict=True)):
            yield from _differing(one, other, f"{path}[{number}]")
    elif wanted != there and (wanted or there) and not _is_same_quantity(wanted, there, path):
        yield path


def _is_same_quantity(wanted: object, there: object, path: str) -> bool:
    """Return whether two quantities are equal; the API server writes 1000m as 1."""
    if not any(each in path for each in _QUANTITIES):
        return False
    one, other = _amount(wanted), _amount(there)
    return one is not None and one == other


def _amount(quantity: object) -> Decimal | None:
    """Return the value of a Kubernetes quantity (`1500m`, `1.5Gi`, `2e3`); None when it is not one."""
    found = _QUANTITY.fullmatch(str(quantity))
    if found is None:
        return None
    number, binary, decimal, exponent = found.groups()
    powers = "numkMGTPE"
    factor = Decimal(1024) ** ("KMGTPE".index(binary) + 1) if binary else Decimal(1)
    if decimal:
        below = powers.index(decimal) < 3
        factor = Decimal(1000) ** (powers.index(decimal) - (3 if below else 2))
    return Decimal(number) * factor * Decimal(10) ** int(exponent or 0)


def _foreign(there: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return manager and path of each part of the specification that another manager owns."""
    found = []
    for each in there["metadata"].get("managedFields", []):
        if _is_ours(each) or each.get("subresource") == "status":
            continue
        fields = each.get("fieldsV1", {})
        found += [(str(each.get("manager", "unknown")), path) for key in fields.keys() - _LEFT_TO_OTHERS
                  for path in _paths(key, fields[key])]  # fmt: skip
    return found


def _paths(key: str, below: Mapping[str, Any]) -> list[str]:
    """f:spec {f:ingress {...}} -> spec.ingress; two steps, for people."""
    names = [each.removeprefix("f:") for each in sorted(below) if each.startswith("f:")]
    top = key.removeprefix("f:")
    return [f"{top}.{name}" for name in names] or [top]


def _is_ours(entry: Mapping[str, Any]) -> bool:
    is_apply = entry.get("operation") == "Apply" and not entry.get("subresource")
    return is_apply and entry.get("manager") == FIELD_MANAGER


def _join(into: Document, fields: Mapping[str, Any]) -> None:
    for key, below in fields.items():
        if key in into:
            _join(into[key], below)
        else:
            into[key] = below
