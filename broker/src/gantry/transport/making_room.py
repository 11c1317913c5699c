"""Who makes room when connections together keep too much: the one that keeps most, of the host that keeps most."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import Generic, Protocol, TypeVar

from gantry.transport.addresses import host_of


class BytesKeeper(Protocol):
    """A connection that keeps bytes for its peer."""

    peer: str  # "ip:port" of the other side


H = TypeVar("H")
K = TypeVar("K", bound=BytesKeeper)

_STALE_MAX = 64  # entries of a heap that count no more, beside as many as there are that count


def largest_first(kept: Mapping[K, int]) -> Iterator[K]:
    """Yield each time the one that keeps most, the oldest of equals, of the host that keeps most.

    kept: bytes by connection, the oldest first; what is yielded counts as gone.  It ends when the host that keeps most
    has no other connection.  All are looked at once, however many are taken.
    """
    of_host: Counter[str] = Counter()
    owners: defaultdict[str, list[tuple[int, int, K]]] = defaultdict(list)
    for number, (owner, count) in enumerate(kept.items()):
        host = host_of(owner.peer)
        of_host[host] += count
        owners[host].append((-count, number, owner))
    for some in owners.values():
        heapify(some)
    hosts = [(-count, number, host) for number, (host, count) in enumerate(of_host.items())]
    heapify(hosts)
    while hosts and owners[hosts[0][2]]:
        total, nth, host = hosts[0]
        less, _, owner = heappop(owners[host])
        heapreplace(hosts, (total - less, nth, host))
        yield owner


class Heaviest(Generic[H]):
    """The heaviest of things whose weights change, the oldest of equals; a change or a question takes O(log n)."""

    def __init__(self, weights: Iterable[tuple[H, float]] = ()) -> None:
        """weights: of different things, the oldest first."""
        # Minus the weight, and a number: the oldest has the lowest.
        self._weights = {thing: (-weight, number) for number, (thing, weight) in enumerate(weights)}
        self._number = len(self._weights)
        self._heap: list[tuple[float, int, H]] = []  # with entries that count no more
        self._make_heap()

    def __len__(self) -> int:
        return len(self._weights)

    def weight(self, thing: H) -> float:
        """Return the weight of a thing, 0 for one that is not there."""
        return -self._weights.get(thing, (0, 0))[0]

    def change(self, thing: H, weight: float) -> None:
        """Set the weight of a thing."""
        known = self._weights.get(thing)
        if known is None:
            self._number += 1
        entry = -weight, self._number if known is None else known[1]
        self._weights[thing] = entry
        heappush(self._heap, (*entry, thing))
        if len(self._heap) > 2 * len(self._weights) + _STALE_MAX:
            self._make_heap()

    def remove(self, thing: H) -> None:
        """Take a thing out."""
        self._weights.pop(thing, None)

    def first(self) -> H | None:
        """Return the heaviest thing; None without any."""
        while self._heap:
            less, number, thing = self._heap[0]
            if self._weights.get(thing) == (less, number):
                return thing
            heappop(self._heap)
        return None

    def _make_heap(self) -> None:
        self._heap = [(less, number, thing) for thing, (less, number) in self._weights.items()]
        heapify(self._heap)
