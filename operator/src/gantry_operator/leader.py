"""Leader election between operators: the holder of one Lease in the operator's own namespace leads.

The holder renews every `EVERY_S`.  It counts from the moment at which it *sent* the renewal that was answered, and
leads for `RENEW_WITHIN_S` from there; all others wait until the Lease has not changed for `LEASE_S` by their own
clock.  No two clocks are compared: the times in the Lease are only for people.  `monotonic` counts while a
process is stopped and while its machine sleeps, so a process that wakes up late knows it before it sends a request.

When the Lease is absent, its last holder may still lead for `RENEW_WITHIN_S`.  So a candidate waits as for a holder: it
makes the Lease when it has been absent for `LEASE_S` since its first look, also in a new installation.  The leader
itself makes it again at its next renewal.  A Lease with an empty holder is taken at once only if the holder released it
(`_RELEASED_S`); a Lease that was applied by hand may have an empty holder as well.

A process that does not lead gets no token (`token`), so it can neither read nor write with it; a standby has another
token for its watches and for the groups that it follows.  When the Lease is lost, `run` ends, and the process with it.
A request that was under way may still arrive; it is a compare-and-set, or writes what the next leader writes too.
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
ANSWER_S = 3.0  # for one request: two fit into the time of a renewal
_LOOK_EVERY_S = 1.0
_REST_S_MIN = 0.05
_SEIZES_MAX = 20  # the holder renews meanwhile
_JITTER_S = 0.4  # so that two candidates do not always ask at the same time
_RELEASED_S = 1  # leaseDurationSeconds of a released Lease; a holder's is LEASE_S
_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


class NotLeadingError(RegisterUnavailableError):
    """The leader's token was requested by a process that does not lead."""


class Leases(Protocol):
    """The part of `kube.Kube` that is used here."""

    async def get(self, path: str) -> Document | None: ...
    async def create(self, document: Document) -> bool: ...
    async def merge(self, path: str, change: Document) -> None: ...


class LeaseName(NamedTuple):
    """Namespace and name of the Lease."""

    namespace: str
    name: str


class _Seen(NamedTuple):
    """The fields of the Lease that change with each renewal."""

    holder: str
    renewed: str
    transitions: int
    is_released: bool = False


_ABSENT = _Seen("", "", -1)


class Election:
    """One process in the election; `who` is unique to the process, also after a restart of its pod."""

    def __init__(self, leases: Leases, place: LeaseName, who: str, clock: Clock) -> None:
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
        """Return whether this process leads now."""
        return self._clock.monotonic() < self._until

    @property
    def holder(self) -> str:
        """Return the leader's identity, as far as known; an empty text when there is none."""
        return self._seen.holder if self._seen is not None else ""

    @property
    def unanswered_s(self) -> float:
        """Return the seconds since the API server last answered."""
        return self._clock.monotonic() - self._answered_at

    def token(self, token: Callable[[], str]) -> Callable[[], str]:
        """Return a token function that raises NotLeadingError while this process does not lead."""

        def only_ours() -> str:
            if not self.leads():
                raise NotLeadingError("this operator does not lead")
            return token()

        return only_ours

    async def run(self) -> str:
        """Take part in the election until the Lease is lost; return how it was lost."""
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
        """Read the Lease, and renew or take it if allowed; a request without an answer is tried again later."""
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
        """Return the pause after a round: the leader begins one each `EVERY_S`, a candidate at the Lease's end."""
        now_s = self._clock.monotonic()
        if self._has_led:
            return max(_REST_S_MIN, began_s + EVERY_S - now_s)
        look_s = _LOOK_EVERY_S + random.uniform(0, _JITTER_S)
        if self._seen is None or self._seen.is_released:
            return look_s
        return max(_REST_S_MIN, min(look_s, self._seen_at + LEASE_S - now_s))

    async def seize(self) -> None:
        """Take the Lease from any holder; KubeError when the API server refuses.

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
        """Release the Lease, so that another process can lead at once; this one does not lead any more."""
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
        """Read the Lease and write it if allowed; return whether this process holds it now."""
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
        """Log a change of the holder."""
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
        """Write the Lease on this version only; after a KubeError it was not written, or that is not known."""
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
