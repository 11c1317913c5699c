"""Writing Events, so that their number is bounded whatever happens.

The same text about the same cluster is one Event.  It is counted when it happens again, and the count is written after
`FIRST_S`, then after twice as long each time, up to `LATEST_S`; so an hour of refusals costs a dozen writes.  Beyond
that a cluster may have `BURST` writes at once and one more every `REFILL_S`.  The counts are lost with the process:
its successor writes a new Event.  An Event that cannot be written is dropped.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from gantry_operator.api.brokercluster import GROUP, KIND, VERSION, Document, Key
from gantry_operator.events import News
from gantry_operator.kube import KubeError, folder_in
from gantry_operator.podseen import seconds_of

log = logging.getLogger("gantry.operator")
FIRST_S, LATEST_S = 10.0, 600.0
FORGET_S = 3600.0  # as long as an API server keeps an Event
BURST, REFILL_S = 256, 10.0
KEPT_MAX = 2000
_MESSAGE_CHARS_MAX = 1000


class EventWriter(Protocol):
    """The part of `kube.Kube` that is used here."""

    async def create(self, document: Document) -> bool: ...
    async def merge(self, path: str, change: Document) -> None: ...


@dataclass(slots=True)
class _Told:
    """One written Event, and how often it happened since."""

    name: str
    count: int
    written_s: float
    last_s: float
    pause_s: float = FIRST_S


@dataclass(slots=True)
class _Bucket:
    """The token bucket of a cluster's writes."""

    left: float
    at_s: float

    def take(self, now_s: float) -> bool:
        """Take a token; return False when there is none."""
        self.left = min(BURST, self.left + max(0.0, now_s - self.at_s) / REFILL_S)
        self.at_s = now_s
        if self.left < 1:
            return False
        self.left -= 1
        return True


class Recorder:
    """Writes the Events of all clusters, joined and limited as described above."""

    def __init__(self, kube: EventWriter) -> None:
        self._kube = kube
        self._told: OrderedDict[tuple[Key, str, News], _Told] = OrderedDict()
        self._buckets: dict[Key, _Bucket] = {}

    async def record(self, key: Key, uid: str, news: Iterable[News], now: str) -> None:
        """Write these Events of a cluster; `now` as Kubernetes writes a time.  Failures are logged."""
        for each in news:
            try:
                await self._record(key, uid, each, now)
            except KubeError as error:
                log.warning("%s/%s: an event was not written: %s", key.namespace, key.name, error)

    def forget(self, key: Key) -> None:
        """Forget everything about a deleted cluster."""
        self._buckets.pop(key, None)
        for place in [each for each in self._told if each[0] == key]:
            del self._told[place]

    async def _record(self, key: Key, uid: str, news: News, now: str) -> None:
        now_s, place = seconds_of(now), (key, uid, news)
        told = self._told.get(place)
        if told is not None and now_s - told.last_s < FORGET_S:
            told.count, told.last_s = told.count + 1, now_s
            if now_s - told.written_s < told.pause_s or not self._may_write(key, news, now_s):
                return
            told.written_s, told.pause_s = now_s, min(2 * told.pause_s, LATEST_S)
            change = {"count": told.count, "lastTimestamp": now}
            await self._kube.merge(f"{folder_in('Event', key.namespace)}/{told.name}", change)
            return
        if not self._may_write(key, news, now_s):
            return
        document = _event(key, uid, news, now)
        self._told[place] = _Told(document["metadata"]["name"], 1, now_s, now_s)
        self._told.move_to_end(place)
        if len(self._told) > KEPT_MAX:
            self._told.popitem(last=False)
        await self._kube.create(document)

    def _may_write(self, key: Key, news: News, now_s: float) -> bool:
        bucket = self._buckets.setdefault(key, _Bucket(BURST, now_s))
        if bucket.take(now_s):
            return True
        log.warning("%s/%s: too many events; not written: %s: %s", key.namespace, key.name, news.reason, news.message)
        return False


def _event(key: Key, uid: str, news: News, now: str) -> Document:
    digest = hashlib.sha256("\n".join([*news, now]).encode()).hexdigest()[:16]
    involved = {
        "apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "namespace": key.namespace, "name": key.name,
        "uid": uid,
    }  # fmt: skip
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": key.namespace, "name": f"{key.name}.{digest}"},
        "involvedObject": involved,
        "type": news.kind,
        "reason": news.reason,
        "message": news.message[:_MESSAGE_CHARS_MAX],
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        "source": {"component": "gantry-operator"},
    }
