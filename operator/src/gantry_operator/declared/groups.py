"""ConsumerGroups on the brokers: reading, changing (`groupplan`), resetting and deleting them, and their lag.

Deleting a group also deletes its offsets and its retry topic.  Its dead letters stay: the operator does not delete
messages that were not processed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from gantry.client.brokeradmin import BrokerAdmin
from gantry.client.requests.lag_requests import QueueLag
from gantry.clock import Clock
from gantry.model.names import retry_topic
from gantry_operator.api import consumergroup
from gantry_operator.api.brokercluster import Document
from gantry_operator.api.consumergroup import ConsumerGroup
from gantry_operator.api.declared import Declared
from gantry_operator.api.groupdefinition import TOPICS_MAX
from gantry_operator.conditions import Condition
from gantry_operator.declared import groupplan
from gantry_operator.declared.asking import Asking
from gantry_operator.declared.groupplan import DONE, RUNNING, ResetState
from gantry_operator.declared.numbers import told
from gantry_operator.declared.outcome import Fault, PassResult
from gantry_operator.declared.territory import BrokerGroup, Territory
from gantry_operator.kube import KubeError, declared_path

LAG_S = 60.0  # between two queries of the lag
_CONFLICT = 409
_SAID = {
    ResetState.DONE: "",
    ResetState.MEMBERS_ONLINE: "it is carried out when no member is online; stop them, or set spec.resetOffset.force",
    ResetState.TOPIC_NOT_FOUND: "no broker group has the topic; it is carried out when there is one",
    ResetState.RUNNING: "it was begun by another operator process; if that has ended, it is begun again in a minute",
}


class Seen(NamedTuple):
    """The consumer group on one broker group."""

    members: set[str]
    lags: Sequence[QueueLag]


class Merging(Protocol):
    """The part of `kube.Kube` that is used here."""

    async def merge(self, path: str, change: Document) -> None: ...


class Groups:
    """The brokers' side of these objects; implements `declarations.KindHandler`."""

    def __init__(self, kube: Merging, brokers: BrokerAdmin, asking: Asking, clock: Clock) -> None:
        self._kube = kube
        self._brokers = brokers
        self._asking = asking
        self._clock = clock
        self._lag_s: dict[Declared, float] = {}  # when the lag of a group was queried last

    def read(self, document: Document) -> ConsumerGroup:
        """Read an object of the API server; ValueError when it is not valid."""
        return consumergroup.read(document)

    async def apply(self, group: ConsumerGroup, territory: Territory) -> PassResult:
        """Read the group on every broker group, change what differs, and reset offsets where that is requested."""
        looks_at_lag = self._is_lag_due(group.about.key)

        async def of(place: BrokerGroup) -> Seen:
            return await self._settle(group, place, looks_at_lag)

        found, faults = await self._asking.all(territory.places, of)
        members = {each for seen in found.values() for each in seen.members}
        fields: Document = {"groupName": group.about.name, "placements": _placements(group, found, faults)}
        online = _consuming(len(members)) if not faults else _consuming(int(group.status.get("members", 0)))
        if not faults:
            fields["members"] = len(members)
            if looks_at_lag:
                fields["lag"] = _lags(group.status, [lag for seen in found.values() for lag in seen.lags])
                self._lag_s[group.about.key] = self._clock.monotonic()
        kept = {key: group.status[key] for key in ("members", "lag", "lastReset") if key in group.status}
        last, said = await self._reset(group, members, list(found) if not faults else [], kept.get("lastReset", {}))
        if last:
            fields["lastReset"] = last
        return PassResult(kept | fields, faults, conditions=[online, *said])

    async def remove(self, group: ConsumerGroup, territory: Territory) -> list[Fault]:
        """Delete the group with its offsets and retry topic on every broker group; return the faults."""
        name = group.about.name

        async def delete(place: BrokerGroup) -> None:
            await self._brokers.delete_group(place.address, name)
            await self._brokers.delete_topic(place.address, retry_topic(name))

        _, faults = await self._asking.all(territory.places, delete)
        return faults

    def forget(self, key: Declared) -> None:
        """Forget everything about a deleted object."""
        self._lag_s.pop(key, None)

    def _is_lag_due(self, key: Declared) -> bool:
        looked_s = self._lag_s.get(key)
        return looked_s is None or self._clock.monotonic() - looked_s >= LAG_S

    async def _settle(self, group: ConsumerGroup, place: BrokerGroup, looks_at_lag: bool) -> Seen:
        name, address = group.about.name, place.address
        wanted = groupplan.change(group, await self._brokers.group(address, name))
        if wanted is not None:
            await self._brokers.put_group(address, wanted)
        members = await self._brokers.members(address, name)
        return Seen(members, await self._brokers.lag(address, place.broker, group=name) if looks_at_lag else [])

    async def _reset(
        self, group: ConsumerGroup, members: set[str], places: Sequence[BrokerGroup], last: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], list[Condition]]:
        """Carry out a requested reset; return its condition for the status, if any."""
        asked = group.reset
        if asked is None or group.about.is_observed:
            return last, []
        if last.get("requestId") == asked.request_id and last.get("result") == DONE:
            return last, [Condition("OffsetReset", True, ResetState.DONE.value, "")]
        topics, silent = await self._asking.all(places, lambda place: self._brokers.topic(place.address, asked.topic))
        if silent or not places:
            said = Condition("OffsetReset", False, "GroupUnavailable", "it is carried out when every group answers")
            return last, [said]
        there = [place for place, config in topics.items() if config is not None]
        what = groupplan.reset(group, members, bool(there), last, self._age_ms(last))
        if what is ResetState.RUN:
            what, last = await self._run(group, asked, there)
        return last, [Condition("OffsetReset", what is ResetState.DONE, what.value, _SAID[what])]

    async def _run(
        self, group: ConsumerGroup, asked: consumergroup.Reset, places: Sequence[BrokerGroup]
    ) -> tuple[ResetState, Mapping[str, Any]]:
        begun = {"requestId": asked.request_id, "result": RUNNING, "at": self._now()}
        claim = {"metadata": {"resourceVersion": group.about.version}, "status": {"lastReset": begun}}
        try:
            await self._kube.merge(f"{declared_path(group.about.key)}/status", claim)
        except KubeError as error:
            if error.status == _CONFLICT:
                return ResetState.RUNNING, group.status.get("lastReset", {})
            raise
        name = group.about.name
        _, faults = await self._asking.all(
            places, lambda place: self._brokers.reset(place.address, name, asked.topic, asked.at_ms)
        )
        if faults:
            return ResetState.RUNNING, begun
        return ResetState.DONE, begun | {"result": DONE, "at": self._now()}

    def _age_ms(self, last: Mapping[str, Any]) -> int:
        if "at" not in last:
            return 0
        return self._clock.now_ms() - int(datetime.fromisoformat(last["at"]).timestamp() * 1000)

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _consuming(members: int) -> Condition:
    if members:
        return Condition("Consuming", True, "MembersOnline", "")
    return Condition("Consuming", False, "NoMembers", "no member is online")


def _placements(group: ConsumerGroup, found: Mapping[BrokerGroup, Seen], faults: Sequence[Fault]) -> list[Document]:
    silent = {each.group for each in faults}
    kept = [each for each in group.status.get("placements", []) if each["group"] in silent]
    seen = [{"group": place.short, "epoch": place.epoch} for place in found]
    return sorted([*kept, *seen], key=lambda each: int(each["group"][1:]))


def _lags(status: Mapping[str, Any], lags: Sequence[QueueLag]) -> list[Document]:
    former = {each["topic"]: each["messages"] for each in status.get("lag", [])}
    behind: dict[str, int] = {}
    for each in lags:
        behind[each.queue.topic] = behind.get(each.queue.topic, 0) + max(each.lag, 0)
    topics = sorted(behind)[:TOPICS_MAX]
    return [{"topic": topic, "messages": told(former.get(topic), behind[topic])} for topic in topics]
