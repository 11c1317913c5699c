"""The last known state of the brokers' pods: their addresses, and whether their processes are known to have ended.

Updated by the watch of pods, read by the failover loop each second.  A process is known to have ended when the kubelet
reported so of its container.  A missing pod does not prove it: the pod may have been deleted by force while its node,
and the process on it, are running and unreachable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

CONTAINER = "broker"


@dataclass(frozen=True, slots=True)
class Sighting:
    """The address of one pod, and whether its process is known to have ended."""

    address: str
    is_gone: bool


class Sightings:
    """The last known states of pods, by namespace and name."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], Sighting] = {}

    def saw(self, pod: Mapping[str, Any], is_deleted: bool) -> None:
        """Take an event of a pod, with its last state when it was deleted."""
        key = pod["metadata"]["namespace"], pod["metadata"]["name"]
        status = pod.get("status", {})
        found = [each for each in status.get("containerStatuses", []) if each["name"] == CONTAINER]
        gone = bool(found) and _is_over(found[0])
        self._seen[key] = Sighting("" if is_deleted else status.get("podIP", ""), gone)

    def address(self, namespace: str, pod: str) -> str:
        """Return the pod's address; an empty text when it is not known."""
        seen = self._seen.get((namespace, pod))
        return "" if seen is None else seen.address

    def is_gone(self, namespace: str, pod: str) -> bool:
        """Return whether the pod's process is known to have ended."""
        seen = self._seen.get((namespace, pod))
        return seen is not None and seen.is_gone


def _is_over(status: Mapping[str, Any]) -> bool:
    state = status.get("state", {})
    return "terminated" in state or ("waiting" in state and "terminated" in status.get("lastState", {}))


class Addresses(Sequence[str]):
    """HOST:PORT of pods by ordinal, looked up at each access; an empty text while not known."""

    def __init__(self, sightings: Sightings, namespace: str, pods: Sequence[str], port: int) -> None:
        self._sightings = sightings
        self._namespace = namespace
        self._pods = tuple(pods)
        self._port = port

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...

    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        host = self._sightings.address(self._namespace, self._pods[index])
        bare = f"[{host}]" if ":" in host else host
        return f"{bare}:{self._port}" if host else ""

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[str]:
        return (self[each] for each in range(len(self)))
