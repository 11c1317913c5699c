"""What was last heard of the brokers' pods: where they are, and whether their process is known to be gone.

Fed by the watch of pods, asked by the failover loop each second.  A process is known to be gone when the kubelet said
so of its container; a pod that is merely not there any more says nothing, because somebody may have deleted it by
force while its node, and the process on it, were alive and out of reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

CONTAINER = "broker"


@dataclass(frozen=True, slots=True)
class Sighting:
    """One pod."""

    address: str
    is_gone: bool


class Sightings:
    """By namespace and name of the pod."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], Sighting] = {}

    def saw(self, pod: Mapping[str, Any], is_deleted: bool) -> None:
        """The pod as it is, or as it was before it went."""
        key = pod["metadata"]["namespace"], pod["metadata"]["name"]
        status = pod.get("status", {})
        found = [each for each in status.get("containerStatuses", []) if each["name"] == CONTAINER]
        gone = bool(found) and _is_over(found[0])
        self._seen[key] = Sighting("" if is_deleted else status.get("podIP", ""), gone)

    def address(self, namespace: str, pod: str) -> str:
        """Its address; empty while nobody knows."""
        seen = self._seen.get((namespace, pod))
        return "" if seen is None else seen.address

    def is_gone(self, namespace: str, pod: str) -> bool:
        """Whether its process is known to have ended."""
        seen = self._seen.get((namespace, pod))
        return seen is not None and seen.is_gone


def _is_over(status: Mapping[str, Any]) -> bool:
    state = status.get("state", {})
    return "terminated" in state or ("waiting" in state and "terminated" in status.get("lastState", {}))


class Addresses(Sequence[str]):
    """HOST:PORT of pods by their number, as they are at the moment they are asked for; empty while unknown."""

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
