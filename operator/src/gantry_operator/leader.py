"""Who works: one Lease in the operator's own namespace, and anyone who holds it leads.

The holder renews every `EVERY_S`.  It counts from the moment at which it *sent* the renewal that was answered, and
leads for `RENEW_WITHIN_S` from there; everybody else waits until the Lease has stood still for `LEASE_S` by their own
clock.  No two clocks are compared: what stands in the Lease as a time is for people.  `monotonic` counts while a
process is stopped and while its machine sleeps, so anyone who wakes up late knows it before he asks anything.

A Lease that is absent says nothing about its last holder, who leads for `RENEW_WITHIN_S` more at most.  So absence is
waited out as a holder is: a candidate makes the Lease when it has been absent for `LEASE_S` since it first looked, also
in a new installation.  The leader itself makes it again at its next renewal.  An empty holder is taken at once only
where the holder released the Lease (`_RELEASED_S`); in a Lease that was applied by hand it says nothing either.

Anyone who does not lead gets no token (`token`), so he can neither read nor write by it; what a standby looks at (its
watches, groups that it may soon have to care for) has its own way.  A Lease that is lost is lost: `run` ends, and the
process with it.  That is all it is good for.  A request that was on its way may still arrive; it is a compare-and-set,
or says what the next leader says too.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from gantry.clock import Clock
from gantry.replication.register import RegisterUnavailableError
from gantry_operator.api.brokercluster import Document
from gantry_operator.kube import KubeError, lease_path

log = logging.getLogger("gantry.operator")

# A group whose master's node is lost together with the leader's waits for the next leader, so it is not long in coming.
LEASE_S, RENEW_WITHIN_S, EVERY_S = 9, 7.0, 1.5
ANSWER_S = 3.0  # for one question: two fit into the time of a renewal
_LOOK_EVERY_S = 1.0
_REST_S_MIN = 0.05
_SEIZES_MAX = 20  # the holder renews meanwhile
_JITTER_S = 0.4  # of anyone who waits: two that wait do not always ask together
_RELEASED_S = 1  # leaseDurationSeconds of a Lease that its holder let go; a holder's is LEASE_S
_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


class NotLeadingError(RegisterUnavailableError):
    """Somebody who does not lead asked for the leader's token."""


class Leases(Protocol):
    """The API server, as `kube.Kube` asks it."""

    async def get(self, path: str) -> Document | None: ...
    async def create(self, document: Document) -> bool: ...
    async def merge(self, path: str, change: Document) -> None: ...


class Place(NamedTuple):
    """Of the Lease."""

    namespace: str
    name: str


class _Seen(NamedTuple):
    """What stands in the Lease and moves with each renewal."""

    holder: str
    renewed: str
    transitions: int
    is_released: bool = False


_ABSENT = _Seen("", "", -1)


class Election:
    """`who` is unique to this process: a pod that starts again is somebody else."""

    def __init__(self, leases: Leases, place: Place, who: str, clock: Clock) -> None:
        self._leases = leases
        self._place = place
        self._who = who
        self._clock = clock
        self._until = float("-inf")  # we lead until then, unless we renew
        self._has_led = False
        self._seen: _Seen | None = None
        self._seen_at = 0.0
        self._answered_at = float("-inf")
        self._complaint = ""
        self.began = asyncio.Event()

    def leads(self) -> bool:
        """Now."""
        return self._clock.monotonic() < self._until

    @property
    def holder(self) -> str:
        """Who leads, as far as we know; empty: nobody."""
        return self._seen.holder if self._seen is not None else ""

    @property
    def unanswered_s(self) -> float:
        """Since the API server last answered us."""
        return self._clock.monotonic() - self._answered_at

    def token(self, token: Callable[[], str]) -> Callable[[], str]:
        """The same for the leader; NotLeadingError for anybody else."""

        def only_ours() -> str:
            if not self.leads():
                raise NotLeadingError("this operator does not lead")
            return token()

        return only_ours

    async def run(self) -> str:
        """Until the Lease is lost; says how."""
        while not self._has_led or self.leads():
            began_s = self._clock.monotonic()
            left_s = self._until - began_s if self._has_led else None
            with suppress(TimeoutError):  # an answer that comes too late is none
                async with asyncio.timeout(left_s):
                    await self.round()
                    await asyncio.sleep(self.rest_s(began_s))
        if self.holder in ("", self._who):
            return f"the Lease {self._place.name} was not renewed within {RENEW_WITHIN_S:g} s"
        return f"the Lease {self._place.name} is {self.holder}'s"

    async def round(self) -> None:
        """Look, and renew or take it where we may; what the API server does not answer is tried again."""
        asked_at = self._clock.monotonic()
        try:
            if await self._hold(asked_at):
                self._until = asked_at + RENEW_WITHIN_S
                if not self._has_led:
                    self._has_led = True
                    log.info("%s leads", self._who)
                    self.began.set()
            self._answered_at, self._complaint = self._clock.monotonic(), ""
        except KubeError as error:
            if error.status:
                self._answered_at = self._clock.monotonic()
            self._complain(str(error))

    def rest_s(self, began_s: float) -> float:
        """After a round that began then: who leads begins one each `EVERY_S`, who waits is there as the Lease ends."""
        now_s = self._clock.monotonic()
        if self._has_led:
            return max(_REST_S_MIN, began_s + EVERY_S - now_s)
        look_s = _LOOK_EVERY_S + random.uniform(0, _JITTER_S)
        if self._seen is None or self._seen.is_released:
            return look_s
        return max(_REST_S_MIN, min(look_s, self._seen_at + LEASE_S - now_s))

    async def seize(self) -> None:
        """Take the Lease, whose ever it is; KubeError when the API server does not let us.

        The former holder loses it at its next renewal, or leads on for `RENEW_WITHIN_S` if it cannot renew.  So the
        caller keeps the Lease for `LEASE_S` before it writes anything else.
        """
        for _ in range(_SEIZES_MAX):
            asked_at = self._clock.monotonic()
            found = await self._leases.get(self._path)
            try:
                if found is None:
                    is_ours = await self._make()
                else:
                    await self._write(found, self._spec(found))
                    is_ours = True
            except KubeError as error:
                if error.status not in (404, 409):
                    raise
                continue
            if is_ours:
                self._until, self._has_led = asked_at + RENEW_WITHIN_S, True
                self.began.set()
                return
        raise KubeError(f"the Lease {self._place.name}", 409, "it changes too often to be taken; try again")

    async def release(self) -> None:
        """Let somebody else lead at once; we do not any more."""
        led, self._until = self.leads(), float("-inf")
        if not led:
            return
        try:
            found = await self._leases.get(self._path)
            if found is not None and found.get("spec", {}).get("holderIdentity") == self._who:
                released = {"holderIdentity": "", "leaseDurationSeconds": _RELEASED_S}
                await self._write(found, self._spec(found) | released)
        except KubeError as error:
            log.warning("the Lease %s is not released, it runs out: %s", self._place.name, error)

    async def _hold(self, asked_at: float) -> bool:
        """Whether it is ours now."""
        found = await self._leases.get(self._path)
        seen = _ABSENT if found is None else _seen(found)
        if seen != self._seen:
            self._say(seen)
            self._seen, self._seen_at = seen, self._clock.monotonic()
        if seen.holder != self._who:
            if self._has_led and found is not None:  # once lost, lost for ever
                self._until = float("-inf")
                return False
            if not (self._has_led or seen.is_released) and asked_at - self._seen_at < LEASE_S:
                return False
        if found is None:
            return await self._make()
        await self._write(found, self._spec(found))
        return True

    def _say(self, seen: _Seen) -> None:
        """One log line for another holder."""
        if seen is _ABSENT:
            what = "its leader makes it again" + ("" if self._has_led else f", or this operator in {LEASE_S} s")
            log.warning("the Lease %s is absent; %s", self._place.name, what)
        elif seen.holder not in (self._who, self.holder):
            log.info("the Lease %s: %s leads", self._place.name, seen.holder or "nobody")

    async def _make(self) -> bool:
        metadata = {"namespace": self._place.namespace, "name": self._place.name}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
        return await self._leases.create(lease | {"spec": self._spec(None)})

    async def _write(self, found: Document, spec: Document) -> None:
        """On this version and no other; a KubeError says that it was not, or that nobody knows."""
        version = {"resourceVersion": found["metadata"]["resourceVersion"]}
        await self._leases.merge(self._path, {"metadata": version, "spec": spec})

    def _spec(self, found: Document | None) -> Document:
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).strftime(_TIME)
        spec = {"holderIdentity": self._who, "leaseDurationSeconds": LEASE_S, "renewTime": now}
        if found is not None and _seen(found).holder == self._who:
            return spec
        transitions = 0 if found is None else _seen(found).transitions + 1
        return spec | {"acquireTime": now, "leaseTransitions": transitions}

    @property
    def _path(self) -> str:
        return lease_path(self._place.namespace, self._place.name)

    def _complain(self, text: str) -> None:
        if text != self._complaint:  # once, not every two seconds
            log.warning("the Lease %s: %s", self._place.name, text)
        self._complaint = text


def _seen(lease: Document) -> _Seen:
    spec = lease.get("spec") or {}
    holder, renewed = spec.get("holderIdentity") or "", spec.get("renewTime") or ""
    is_released = not holder and spec.get("leaseDurationSeconds") == _RELEASED_S
    return _Seen(str(holder), str(renewed), int(spec.get("leaseTransitions") or 0), is_released)
