"""The first part of every pass, also of a standby: start a failover loop for each group, whatever else is wrong.

A loop needs the cluster's name, its key, and the register, which it reads itself.  So the specification is read
leniently (`api.lenient`), the last known key suffices (`hakeys`), and loops go on when a list fails
(`observe.listing`).  Lists that take longer than `FIRST_S` are not waited for: the loops begin with careful
terms, and change to those of the pods when the lists have come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from gantry.failover.decide import Blocked, Decision, Wait
from gantry_operator import observe
from gantry_operator.api import lenient
from gantry_operator.api.brokercluster import Document, Key
from gantry_operator.api.lenient import LenientCluster
from gantry_operator.hakeys import HaKey, HaKeys
from gantry_operator.hakeys import Secrets as SecretObjects
from gantry_operator.hindrances import Hindrance, of_lists
from gantry_operator.observe import Listing
from gantry_operator.snapshot import GroupSeen, Snapshot, replicas_seen

FIRST_S = 1.0
ASKED_FOR = "; the failover that was asked for: "


class ObjectReader(observe.Reads, SecretObjects, Protocol):
    """The part of `kube.Kube` that is used here."""


class Loops(Protocol):
    """The part of `watching.Watches` that is used here."""

    def expect(self, key: Key) -> None: ...
    def keep(self, snapshot: Snapshot, key: bytes) -> None: ...
    def key_of(self, key: Key) -> bytes | None: ...
    def unwatched(self, key: Key) -> dict[str, str]: ...
    def last(self, key: Key, group: str) -> Decision | None: ...
    def forget(self, key: Key) -> None: ...


class Followed(NamedTuple):
    """A cluster's snapshot after its failover loops were started."""

    reading: LenientCluster
    snapshot: Snapshot
    key: HaKey
    listed: Listing

    @property
    def hindrances(self) -> Sequence[Hindrance]:
        """Return the problems found so far."""
        found = [Hindrance("Invalid", self.reading.message)] if self.reading.faults else []
        found += [self.key.fault] if self.key.fault is not None else []
        return [*found, *of_lists(self.listed.failed)]


class Following:
    """Starts the failover loops of a cluster, then lists its objects.  A standby makes no Secret (`makes`)."""

    def __init__(self, kube: ObjectReader, loops: Loops, makes: bool) -> None:
        self._kube = kube
        self._loops = loops
        self._makes = makes
        self._keys = HaKeys(kube, loops)

    async def start_loops(self, key: Key, found: Document) -> Followed:
        """Start the loops of a cluster and return its snapshot; ValueError without a name, a uid or a generation."""
        self._loops.expect(key)
        reading = lenient.read_leniently(found)
        listing = asyncio.create_task(observe.listing(self._kube, key))
        try:
            held = await self._keys.read(key)
            if held.key is not None and reading.has_counts and not reading.cluster.is_going:
                await asyncio.wait([listing], timeout=FIRST_S)
                if not listing.done():
                    self._loops.keep(observe.seen(reading.cluster, observe.NOTHING), held.key)
            listed = await listing
        finally:
            listing.cancel()
        sets = [replicas_seen(each) or 0 for each in listed.of("StatefulSet").values()]
        cluster = lenient.counted(reading, listed.names, sets)
        if self._makes and held.is_missing and not cluster.is_going and not reading.faults:
            held = await self._keys.make(cluster, held.key, listed.had_brokers)
        snapshot = observe.seen(cluster, listed)
        if held.key is not None and (listed.has_brokers or not cluster.is_going):
            self._loops.keep(snapshot, held.key)
        if "Lease" in listed.failed:
            snapshot = observe.seen(cluster, await observe.registers(self._kube, cluster, listed))
        return Followed(reading, self.told(snapshot, held), held, listed)

    def told(self, snapshot: Snapshot, held: HaKey) -> Snapshot:
        """Return the snapshot with the last decisions of the failover loops."""
        key = snapshot.cluster.key
        unwatched = self._loops.unwatched(key)
        if held.key is None:
            said = held.fault.message if held.fault is not None else f"there is no Secret {snapshot.cluster.secret}"
            unwatched = {group.group.short: said for group in snapshot.groups}
        return replace(snapshot, groups=[self._with_loop(each, unwatched) for each in snapshot.groups])

    def forget(self, key: Key) -> None:
        """Forget everything about a deleted cluster."""
        self._loops.forget(key)
        self._keys.forget(key)

    def _with_loop(self, seen: GroupSeen, unwatched: dict[str, str]) -> GroupSeen:
        """Return the group with the last decision of its failover loop, or why it has no loop."""
        short = seen.group.short
        if short in unwatched:
            return replace(seen, unwatched=unwatched[short] or "its failover loop was not begun")
        last = self._loops.last(seen.group.cluster.key, short)
        if not isinstance(last, Blocked | Wait):
            return seen
        reason, _, refused = last.reason.partition(ASKED_FOR)
        return replace(seen, blocked=reason if isinstance(last, Blocked) else "", refused=refused)
