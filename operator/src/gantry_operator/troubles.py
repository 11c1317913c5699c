"""Texts about pods that do not start: the field or the container, and what to do; pure."""

from __future__ import annotations

from gantry_operator.api.doorspec import DoorKind
from gantry_operator.podseen import Pod
from gantry_operator.snapshot import GroupSeen

REASONS = {"image": "ImageCannotBePulled", "volume": "NoVolume", "place": "NoNode", "crash": "Crashing"}
_PULL = "name an image that exists, and in spec.imagePullSecrets a Secret that may pull it"


def of_member(group: GroupSeen, pod: Pod, image: str) -> str:
    """Say why a broker's pod does not start; `image` is the wanted one."""
    storage = group.group.cluster.brokers.storage
    match pod.trouble:
        case "volume":
            which = storage.storage_class or "the default class"
            return (
                f"spec.brokers.storage.storageClassName: {which} gives {pod.name} no volume; make such a class, or "
                f"delete this cluster and its volume claims and apply it with another (kubectl describe pvc "
                f"store-{pod.name})"
            )
        case "place":
            return (
                f"spec.brokers: no node takes {pod.name}; look at antiAffinity, resources, and podTemplate's "
                f"nodeSelector, tolerations and spread (kubectl describe pod {pod.name})"
            )
        case _:
            return _of_container(pod, "spec.brokers", image)


def of_nameserver(pod: Pod, image: str) -> str:
    """Say why a name server's pod does not start."""
    return _of_stateless(pod, "spec.nameserver", image)


def of_door(kind: DoorKind, pod: Pod, image: str) -> str:
    """Say why a door's pod does not start."""
    return _of_stateless(pod, kind.field, image)


def _of_stateless(pod: Pod, where: str, image: str) -> str:
    if pod.trouble in ("image", "crash"):
        return _of_container(pod, where, image)
    return (
        f"{where}: no node takes {pod.name}; look at resources, and podTemplate's nodeSelector, tolerations "
        f"and spread (kubectl describe pod {pod.name})"
    )


def _of_container(pod: Pod, where: str, image: str) -> str:
    which = f"container {pod.container} of {pod.name}" if pod.container else pod.name
    if pod.trouble == "image" and pod.container:
        return f"{where}.podTemplate: the image of {which} cannot be pulled; {_PULL}"
    if pod.trouble == "image":
        return f"spec.image: {pod.image or image} cannot be pulled for {pod.name}; {_PULL}"
    option = f" -c {pod.container}" if pod.container else ""
    return f"{which} ends again and again; kubectl logs {pod.name}{option} --previous says why"
