"""Which HTTP topics and subscriptions there are: read from the topics of all masters, and written to all of them.

Every change asks all registered masters, changes the newest of what they have, and writes it to those that have
something else; a master that does not answer fails the change, and so does a group that has none now. `get` repairs a
master that was away. Two servers may change different subscriptions of a topic at the same time: each is an attribute
of its own.

    subscribe      the group and its offsets first, then the attribute: what is published after the answer is forwarded
    unsubscribe    the attribute; the group a minute later, when no server pops for it any more.  A pop for a group
                   without offsets would begin at the oldest message
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace
from weakref import WeakValueDictionary

from gantry.client.requests import admin_requests, lag_requests, topicstats
from gantry.client.requests.lag_requests import Target
from gantry.client.requests.question import Question
from gantry.errors import GantryError, OutcomeUnknownError, RefusedError, UnreachableError
from gantry.gateway.brokers import Brokers, Fresh, some_master
from gantry.model import httpqueue, httptopic
from gantry.model.subscription import GroupConfig
from gantry.model.topic import TopicConfig
from gantry.pop.handle import RETRY_V1, retry_topic
from gantry.queues import subscriptions
from gantry.queues.faults import QueueFaultError, invalid
from gantry.queues.masters import Found, Masters, paged
from gantry.queues.subscriptions import KnownTopic, TopicOptions, TopicSubscription
from gantry.transport.tasks import Tasks
from gantry.wire.codes import ResponseCode

log = logging.getLogger(__name__)

_FRESH_S = 1.0
_POPPED_S = 60.0  # after the end of a subscription; servers follow it within two seconds
_REPAIRS_MAX = 20  # at a time


class KnownTopics:
    """The HTTP topics of a cluster; `close` at the end.

    `on_change` is called when this server changed one, `on_end` with the topic and the identity of a subscription that
    it ended.
    """

    def __init__(self, brokers: Brokers, now_ms: Callable[[], int]) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self.on_end: Callable[[str, str], None] = lambda topic, identity: None
        self._brokers = brokers
        self._masters = Masters(brokers)
        self._now_ms = now_ms
        self._known: Fresh[KnownTopic | None] = Fresh(self._ask, _FRESH_S)
        self._tables: Fresh[dict[str, KnownTopic]] = Fresh(self._ask_all, _FRESH_S)
        self._last: dict[str, dict[str, KnownTopic]] = {}  # by broker group: what its master answered last
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # one change of a topic at a time
        self._repairs: set[str] = set()
        self._tasks = Tasks()

    async def close(self) -> None:
        """End what is under way."""
        await self._tasks.close()

    async def get(self, name: str) -> KnownTopic:
        """Return a topic as it was at most a second ago; QueueFaultError TopicNotExist, and the errors of requests."""
        found = await self._known.get(subscriptions.check_name(name, "Topic"))
        if found is None:
            self._known.forget(name, also_answer=True)  # it may be made at any time, by any server
            raise no_topic(name)
        return found

    async def every(self) -> dict[str, KnownTopic]:
        """Return all topics by name, as they were at most a second ago."""
        return await self._tables.get("")

    async def page(self, prefix: str, marker: str, count: int) -> tuple[list[KnownTopic], str]:
        """Return topics in the order of their names, after a marker; and the marker of the next page, or nothing."""
        return paged(await self.every(), prefix, marker, count)

    async def count(self, name: str) -> int:
        """Return how many messages the topic has on all masters, consumed ones too."""
        addresses = (await self._brokers.masters()).values()
        asked = [self._masters.ask(one, topicstats.topic_stats(name)) for one in addresses]
        found = await asyncio.gather(*asked)
        return sum(high - low for stats in found for low, high in stats.ends.values())

    async def create(self, name: str, settings: TopicOptions) -> bool:
        """Make a topic. Return False when it is there with equal settings; 409 when they differ, or it is a queue."""
        subscriptions.check_name(name, "Topic")
        async with self._lock(name):
            found = await self._masters.look(name, await self._brokers.every_master())
            if any(config is not None and httpqueue.is_queue(config.attributes) for config in found.values()):
                raise QueueFaultError(409, "TopicAlreadyExist", f"{name} is a queue; a name is a queue or a topic")
            topic = _merged(name, found)
            if topic is not None:
                if topic.settings != settings:
                    text = f"the topic {name} exists with other attributes; change them with ?metaoverride=true"
                    raise QueueFaultError(409, "TopicAlreadyExist", text)
                await self._write(topic, found)
                return False
            now_s = self._now_ms() // 1000
            await self._write(KnownTopic(name, secrets.token_hex(8), settings, now_s, now_s), found)
            await self._masters.routed(name, found)
        self._changed(name)
        return True

    async def alter(self, name: str, change: Callable[[TopicOptions], TopicOptions]) -> None:
        """Change the settings of a topic on all masters; QueueFaultError TopicNotExist."""
        async with self._lock(name):
            topic, found = await self._present(name)
            modified_s = max(topic.modified_s + 1, self._now_ms() // 1000)
            await self._write(replace(topic, settings=change(topic.settings), modified_s=modified_s), found)
        self._changed(name)

    async def delete(self, name: str) -> None:
        """Delete a topic with its messages and subscriptions; nothing happens when there is none."""
        async with self._lock(name):
            masters = await self._brokers.every_master()
            topic = _merged(name, await self._masters.look(subscriptions.check_name(name, "Topic"), masters))
            if topic is None:
                return
            await self._tell_all(admin_requests.delete_topic(name))
            for one in topic.subscriptions():
                self.on_end(name, one.identity)
                await self._drop_group(name, one)
            for nameserver in self._brokers.session.nameservers:
                await self._masters.ask(nameserver, admin_requests.delete_topic_route(name))
            self._brokers.routes.doubt(name)
        self._changed(name)

    async def subscribe(self, name: str, wanted: TopicSubscription) -> bool:
        """Make a subscription, which has neither id nor times yet. Return False when it is there and equal; 409 when it
        differs, QueueFaultError TopicNotExist.
        """
        async with self._lock(name):
            topic, found = await self._present(name)
            old = topic.every.get(wanted.name)
            if old is not None and not old.is_deleted:
                same = replace(
                    wanted, identity=old.identity, created_s=old.created_s, modified_s=old.modified_s
                )
                if same != old:
                    text = f"the subscription {wanted.name} exists with other attributes; unsubscribe first"
                    raise QueueFaultError(409, "SubscriptionAlreadyExist", text)
                return False
            now_s = max(self._now_ms() // 1000, 0 if old is None else old.modified_s + 1)
            rest = subscriptions.without_old(topic, now_s)
            if old is None and len(rest.every) >= httptopic.SUBSCRIPTIONS_MAX:
                text = f"the topic has {len(rest.every)} subscriptions, those ended in the last week included"
                raise invalid(f"{text}; no more are allowed")
            made = replace(wanted, identity=secrets.token_hex(8), created_s=now_s, modified_s=now_s)
            await self._begin_group(name, made)
            await self._write(replace(rest, every={**rest.every, made.name: made}), found)
        self._changed(name)
        old_ones = [one for key, one in topic.every.items() if key not in rest.every]
        if old_ones:
            self._tasks.own(asyncio.create_task(self._drop_later(name, old_ones)))
        return True

    async def resubscribe(
        self, name: str, subscription: str, change: Callable[[TopicSubscription], TopicSubscription]
    ) -> None:
        """Change a subscription on all masters; QueueFaultError TopicNotExist or SubscriptionNotExist."""
        async with self._lock(name):
            topic, found = await self._present(name)
            old = of_name(topic, subscription)
            new = replace(change(old), modified_s=max(old.modified_s + 1, self._now_ms() // 1000))
            await self._write(replace(topic, every={**topic.every, new.name: new}), found)
        self._changed(name)

    async def unsubscribe(self, name: str, subscription: str) -> None:
        """End a subscription with what is not forwarded yet; nothing happens when there is none."""
        async with self._lock(name):
            topic, found = await self._present(name)
            old = topic.every.get(subscription)
            if old is None or old.is_deleted:
                return
            now_s = max(old.modified_s + 1, self._now_ms() // 1000)
            gone = TopicSubscription(
                old.name, old.identity, "", created_s=old.created_s, modified_s=now_s, is_deleted=True
            )
            await self._write(replace(topic, every={**topic.every, gone.name: gone}), found)
        self._changed(name)
        self.on_end(name, old.identity)
        self._tasks.own(asyncio.create_task(self._drop_later(name, [old])))

    # Masters

    def _lock(self, name: str) -> asyncio.Lock:
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock

    def _changed(self, name: str) -> None:
        self._known.forget(name)
        self._tables.forget("")
        self.on_change()

    async def _present(self, name: str) -> tuple[KnownTopic, Found]:
        """Return a topic, and what each master has of it, for a change."""
        found = await self._masters.look(subscriptions.check_name(name, "Topic"), await self._brokers.every_master())
        topic = _merged(name, found)
        if topic is None:
            raise no_topic(name)
        return topic, found

    async def _ask(self, name: str) -> KnownTopic | None:
        found = await self._masters.look(name, some_master(await self._brokers.masters()))
        topic = _merged(name, found)
        is_due = name not in self._repairs and len(self._repairs) < _REPAIRS_MAX
        if topic is not None and is_due and any(_lacks(topic, config) for config in found.values()):
            self._repairs.add(name)
            self._tasks.own(asyncio.create_task(self._repair(name)))
        return topic

    async def _repair(self, name: str) -> None:
        try:
            async with self._lock(name):
                topic, found = await self._present(name)
                await self._write(topic, found)
        except GantryError as error:
            log.info("topic %s: a master does not have it as the others do: %s", name, error)
        finally:
            self._repairs.discard(name)

    async def _ask_all(self, _: str) -> dict[str, KnownTopic]:
        masters = some_master(await self._brokers.masters())
        tables = await asyncio.gather(*(self._table(group, address) for group, address in masters.items()))
        self._last = dict(zip(masters, tables, strict=True))
        found: dict[str, list[KnownTopic]] = {}
        for table in tables:
            for name, one in table.items():
                found.setdefault(name, []).append(one)
        return {name: topic for name, same in found.items() if (topic := subscriptions.merged(same)) is not None}

    async def _table(self, group: str, address: str) -> dict[str, KnownTopic]:
        """Ask a master for its topics.  One that does not answer now has those that it had.

        What the others say must count: a pop for a subscription that was ended meanwhile would begin at the oldest
        message when its group is deleted.
        """
        try:
            table = await self._masters.ask(address, admin_requests.topic_table())
        except (UnreachableError, OutcomeUnknownError):
            if group not in self._last:
                raise
            return self._last[group]
        topics = {name: subscriptions.of_attributes(name, config.attributes) for name, config in table.items()}
        return {name: topic for name, topic in topics.items() if topic is not None}

    async def _write(self, topic: KnownTopic, found: Found) -> None:
        """Have all masters know a topic as it is given here."""
        masters = await self._brokers.masters()
        for group in sorted(found):
            config = found[group]
            if group in masters and _lacks(topic, config):
                await self._put(masters[group], topic, config)

    async def _put(self, address: str, topic: KnownTopic, config: TopicConfig | None) -> None:
        old = None if config is None else subscriptions.of_attributes(topic.name, config.attributes)
        if old is not None and old.identity != topic.identity:
            log.warning("%s: has the topic %s as it was before its deletion; deleted there too", address, topic.name)
            await self._masters.ask(address, admin_requests.delete_topic(topic.name))
            config = None
        if config is None:
            config = TopicConfig(topic.name)
        await self._masters.ask(address, admin_requests.alter_topic(config, _changes(topic, config)))

    async def _begin_group(self, topic: str, one: TopicSubscription) -> None:
        """Make the group of a new subscription on all masters, at the end of what the topic has.

        A reset is answered when it is saved here and at the slaves; of an offset that is only committed a broker's end
        could leave nothing, and the group would begin at the oldest message.
        """
        for address in (await self._brokers.masters()).values():
            config = GroupConfig(one.group, retry_times_max=httpqueue.RETRIES_MAX)
            await self._masters.ask(address, admin_requests.put_group(config))
            end = lag_requests.reset(one.group, topic, Target(lag_requests.LATEST_MS))
            try:
                await self._masters.ask(address, end)
            except RefusedError as error:
                if error.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise  # else it has nothing from before: the topic is made there next

    async def _drop_group(self, topic: str, one: TopicSubscription) -> None:
        await self._tell_all(admin_requests.delete_group(one.group, clean_offsets=True))
        await self._tell_all(admin_requests.delete_topic(retry_topic(topic, one.group, RETRY_V1)))

    async def _drop_later(self, topic: str, ended: Iterable[TopicSubscription]) -> None:
        """Delete groups; one that stays, because this server ends, is deleted when its attribute is a week old."""
        await asyncio.sleep(_POPPED_S)
        for one in ended:
            try:
                await self._drop_group(topic, one)
            except GantryError as error:
                log.info("group %s of an ended subscription stays: %s", one.group, error)

    async def _tell_all(self, question: Question[None]) -> None:
        for address in (await self._brokers.masters()).values():
            await self._masters.ask(address, question)


def no_topic(name: str) -> QueueFaultError:
    """Return the answer for a topic that does not exist."""
    text = f"the topic {name[:120]} does not exist; create it with PUT /topics/NAME"
    return QueueFaultError(404, "TopicNotExist", text)


def of_name(topic: KnownTopic, name: str) -> TopicSubscription:
    """Return a subscription; QueueFaultError SubscriptionNotExist when there is none."""
    found = topic.every.get(name)
    if found is None or found.is_deleted:
        text = f"the topic {topic.name} has no subscription {name[:120]}"
        raise QueueFaultError(404, "SubscriptionNotExist", text)
    return found


def _merged(name: str, found: Found) -> KnownTopic | None:
    known = [subscriptions.of_attributes(name, config.attributes) for config in found.values() if config is not None]
    return subscriptions.merged(one for one in known if one is not None)


def _lacks(topic: KnownTopic, config: TopicConfig | None) -> bool:
    return config is None or bool(_changes(topic, config))


def _changes(topic: KnownTopic, config: TopicConfig) -> dict[str, str | None]:
    """Return the changes of attributes that make a broker's topic have what is given."""
    wanted = subscriptions.stored(topic)
    changes: dict[str, str | None] = {key: text for key, text in wanted.items() if config.attributes.get(key) != text}
    old = [key for key in config.attributes if key.startswith(httptopic.SUBSCRIPTION) and key not in wanted]
    return changes | dict.fromkeys(old)
