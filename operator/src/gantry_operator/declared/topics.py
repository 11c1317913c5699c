"""BrokerTopics on the brokers: reading, changing step by step (`topicplan`) and deleting them.

Producers keep a route for up to half a minute.  So a queue that was closed to them is taken from consumers
`PRODUCERS_S` later at the earliest: until then a producer may still write there, and its message is acknowledged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gantry.client.brokeradmin import BrokerAdmin
from gantry.clock import Clock
from gantry.model.route import MessageQueue
from gantry.model.topic import TopicConfig
from gantry_operator.api import brokertopic
from gantry_operator.api.brokercluster import Document
from gantry_operator.api.brokertopic import BrokerTopic, permission_of
from gantry_operator.api.declared import Declared
from gantry_operator.declared import topicplan
from gantry_operator.declared.asking import Asking
from gantry_operator.declared.outcome import Fault, PassResult
from gantry_operator.declared.territory import BrokerGroup, Territory

PRODUCERS_S = 45.0
_STEPS_MAX = 3
_DRAINING = (
    "Draining",
    "queues that are given up are closed to producers, and taken from consumers when nothing is left to read there",
)
_NOT_FOUND = ("NotFound", "no broker group has it, and it is not made: managementPolicy is Observe")


class Topics:
    """The brokers' side of these objects; implements `declarations.KindHandler`."""

    def __init__(self, brokers: BrokerAdmin, asking: Asking, clock: Clock) -> None:
        self._brokers = brokers
        self._asking = asking
        self._clock = clock
        self._closed_s: dict[tuple[Declared, str], float] = {}  # when producers lost queues of a group

    def read(self, document: Document) -> BrokerTopic:
        """Read an object of the API server; ValueError when it is not valid."""
        return brokertopic.read(document)

    async def apply(self, topic: BrokerTopic, territory: Territory) -> PassResult:
        """Read the topic on every group, and change what differs."""

        async def of(place: BrokerGroup) -> TopicConfig | None:
            return await self._settle(topic, place)

        found, faults = await self._asking.all(territory.places, of)
        here = {place: config for place, config in found.items() if config is not None}
        faults += _elsewhere(topic, territory.places)
        waits = ("", "")
        if any(topicplan.is_draining(topic, place.short, config) for place, config in here.items()):
            waits = ("", "") if topic.about.is_observed else _DRAINING
        elif not here and topic.about.is_observed:
            waits = _NOT_FOUND
        fields = {"topicName": topic.about.name, "placements": _placements(topic, here, faults)}
        return PassResult(fields, faults, waits)

    async def remove(self, topic: BrokerTopic, territory: Territory) -> list[Fault]:
        """Delete the topic with its messages on every group, then from the name servers; return the faults."""
        name = topic.about.name

        async def delete(place: BrokerGroup) -> None:
            await self._brokers.delete_topic(place.address, name)

        _, faults = await self._asking.all(territory.places, delete)
        if faults:
            return faults

        async def forget(place: BrokerGroup) -> None:
            await self._brokers.forget_route(place.address, name)

        # A name server that does not answer forgets it with the brokers' next registration, which lacks the topic.
        await self._asking.all([BrokerGroup(each, each, 0, each) for each in territory.nameservers], forget)
        return []

    def forget(self, key: Declared) -> None:
        """Forget everything about a deleted object."""
        for place in [each for each in self._closed_s if each[0] == key]:
            del self._closed_s[place]

    async def _settle(self, topic: BrokerTopic, place: BrokerGroup) -> TopicConfig | None:
        name = topic.about.name
        config = await self._brokers.topic(place.address, name)
        for _ in range(_STEPS_MAX):
            seen = topicplan.TopicSeen(config, await self._unread(topic, place, config))
            put = topicplan.change(topic, place.short, seen)
            if put is None:
                break
            if config is not None and put.config.write_queues < config.write_queues:
                self._closed_s[topic.about.key, place.short] = self._clock.monotonic()
            await self._brokers.put_topic(place.address, put.config, put.attributes)
            config = await self._brokers.topic(place.address, name)
        return config

    async def _unread(self, topic: BrokerTopic, place: BrokerGroup, config: TopicConfig | None) -> int:
        if config is None or not topicplan.gives_up_queues(topic, place.short, config):
            return 0
        closed_s = self._closed_s.get((topic.about.key, place.short))
        if closed_s is not None and self._clock.monotonic() - closed_s < PRODUCERS_S:
            return config.read_queues
        given_up = range(topic.read_queues, config.read_queues)
        lags = await self._brokers.lag(place.address, place.broker, topic=config.name)
        unread = {each.queue.queue_id for each in lags if each.lag > 0}
        if not lags:  # no group reads it yet: later ones have to find every message
            for queue_id in given_up:
                low, high = await self._brokers.queue_range(
                    place.address, MessageQueue(config.name, place.broker, queue_id)
                )
                unread |= {queue_id} if high > max(low, 0) else set()
        return max((each + 1 for each in unread if each in given_up), default=0)


def _elsewhere(topic: BrokerTopic, places: Sequence[BrokerGroup]) -> list[Fault]:
    missing = set(topic.placed) - {place.short for place in places}
    return [Fault(each, False, "the cluster has no such group; spec.placement.groups names it") for each in missing]


def _placements(topic: BrokerTopic, here: Mapping[BrokerGroup, TopicConfig], faults: Sequence[Fault]) -> list[Document]:
    silent = {each.group for each in faults}
    kept = [each for each in topic.status.get("placements", []) if each["group"] in silent]
    seen = [
        {
            "group": place.short,
            "epoch": place.epoch,
            "read": config.read_queues,
            "write": config.write_queues,
            "permission": permission_of(config.perm),
        }
        for place, config in here.items()
    ]
    return sorted([*kept, *seen], key=lambda each: int(each["group"][1:]))
