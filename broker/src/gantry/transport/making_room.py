"""Who makes room when connections together keep too much."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heapreplace
from typing import Protocol, TypeVar

from gantry.transport.addresses import host_of


class BytesKeeper(Protocol):
    """A connection that keeps bytes for its peer."""

    peer: str  # "ip:port" of the other side


K = TypeVar("K", bound=BytesKeeper)


def largest_first(kept: Mapping[K, int], asking: tuple[str, int] | None = None) -> Iterator[K]:
    """Yield each time the one that keeps most, the oldest of equals, of the host that keeps most.

    kept: bytes by connection, the oldest first; what is yielded counts as gone.  asking: a host, and what another
    connection of it would keep.  It ends when the host that keeps most has no other connection.  All are looked at
    once, however many are taken.
    """
    of_host = Counter(dict([asking] if asking else []))
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
