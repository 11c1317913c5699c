"""Which queues there are: read from the topics of all masters, and written to all of them.

    create    the master whose group sorts first decides: brokers take an incarnation once, so of two servers that
              create a queue at a time one loses, reads the other's incarnation, and goes on with it
    set       all masters
    delete    all masters, with the retry topic, and the routes of name servers
    get       every master is asked, at most once a second; the newest answer counts

A master that lacks a queue, or has other values, gets them after the next get: it was not there when they were written.
A master that is registered and does not answer fails every call that would have to know what it has, and a group
without a master fails every change: a second incarnation made beside it would have its queue deleted when it is back,
and what is deleted beside it would come back.  Without any master nothing is known: that is no missing queue.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import replace

from gantry.client.requests import admin_requests
from gantry.client.requests.queue_requests import QueueStats, stats
from gantry.errors import GantryError, RefusedError
from gantry.gateway.brokers import Brokers, Fresh, some_master
from gantry.model.httpqueue import GROUP, PRIORITIES, RETRIES_MAX
from gantry.model.subscription import GroupConfig
from gantry.model.topic import TopicConfig
from gantry.pop.handle import retry_topic
from gantry.queues import attributes
from gantry.queues.attributes import KnownQueue, QueueSettings
from gantry.queues.faults import QueueFaultError, no_queue
from gantry.queues.masters import Found, Masters, paged
from gantry.transport.tasks import Tasks

log = logging.getLogger(__name__)

_FRESH_S = 1.0
_TOPIC_ID = "gantry.topic.id"  # of a topic in the manner of MNS
_STATS_S = 8.0  # longer than a failover of a few seconds
_REPAIRS_MAX = 100  # at a time


class KnownQueues:
    """The queues of a cluster; `close` at the end."""

    def __init__(self, brokers: Brokers, now_ms: Callable[[], int]) -> None:
        self._brokers = brokers
        self._masters = Masters(brokers)
        self._now_ms = now_ms
        self._known: Fresh[KnownQueue | None] = Fresh(self._ask, _FRESH_S)
        self._tables: Fresh[dict[str, KnownQueue]] = Fresh(self._ask_all, _FRESH_S)
        self._changing: dict[str, _Turn] = {}
        self._grouped: set[str] = set()  # addresses whose broker has the group
        self._repairs: dict[str, asyncio.Task[None]] = {}
        self._tasks = Tasks()

    async def close(self) -> None:
        """End what is under way."""
        await self._tasks.close()

    def at_hand(self, name: str) -> KnownQueue | None:
        """Return a queue that was read within the last second, without waiting; None else."""
        return self._known.at_hand(name)

    async def get(self, name: str) -> KnownQueue:
        """Return a queue as it was at most a second ago; QueueFaultError QueueNotExist, and the errors of requests."""
        found = await self._known.get(attributes.check_name(name))
        if found is None:
            self._known.forget(name, also_answer=True)  # it may be made at any time, by any server
            raise no_queue(name)
        return found

    async def now(self, name: str) -> KnownQueue:
        """Return a queue as all masters have it now, not as it was known here; errors as of `get`."""
        found = await self._ask(name)
        self._known.forget(name)
        if found is None:
            raise no_queue(name)
        return found

    async def create(self, name: str, settings: QueueSettings) -> bool:
        """Make a queue. Return False when it is there with equal settings; 409 when they differ."""
        attributes.check_name(name)
        async with self._alone(name):
            found = await self._masters.look(name, await self._brokers.every_master())
            queue = _newest(name, found)
            is_new = queue is None
            if any(config is not None and _TOPIC_ID in config.attributes for config in found.values()):
                raise QueueFaultError(409, "QueueAlreadyExist", f"{name} is a topic; choose another name")
            if queue is None:
                now_s = self._now_ms() // 1000
                queue = KnownQueue(name, secrets.token_hex(8), settings, now_s, now_s)
                queue = await self._first(queue, found)
            await self._write(queue, found)
            if queue.settings != settings:
                text = f"the queue {name} exists with other attributes; change them with ?metaoverride=true"
                raise QueueFaultError(409, "QueueAlreadyExist", text)
            if is_new:
                await self._masters.routed(name, found)
            return is_new

    async def alter(self, name: str, change: Callable[[QueueSettings], QueueSettings]) -> None:
        """Change the settings of a queue on all masters; QueueFaultError QueueNotExist."""
        async with self._alone(name):
            found = await self._masters.look(attributes.check_name(name), await self._brokers.every_master())
            queue = _newest(name, found)
            if queue is None:
                raise no_queue(name)
            modified_s = max(queue.modified_s + 1, self._now_ms() // 1000)
            await self._write(replace(queue, settings=change(queue.settings), modified_s=modified_s), found)

    async def delete(self, name: str) -> None:
        """Delete a queue with its messages; nothing happens when there is none, or only a topic of this name."""
        async with self._alone(name):
            masters = await self._brokers.every_master()
            found = await self._masters.look(attributes.check_name(name), masters)
            if _newest(name, found) is None:
                return
            topics = [name, retry_topic(name, GROUP)]
            for topic in topics:
                for address in masters.values():
                    await self._masters.ask(address, admin_requests.delete_topic(topic))
            for nameserver in self._brokers.session.nameservers:
                for topic in topics:
                    await self._masters.ask(nameserver, admin_requests.delete_topic_route(topic))
            self._brokers.routes.doubt(name)

    async def stats(self, name: str) -> QueueStats:
        """Return the numbers of messages, summed over all masters; the error of one that does not answer in time.

        A group that has no master now is left out: with an error nobody could read the queue's attributes either.
        """
        names = sorted(some_master(await self._brokers.masters()))
        asked = [self._brokers.until_done(one, stats(name, GROUP), _STATS_S) for one in names]
        return sum(await asyncio.gather(*asked), QueueStats())

    async def page(self, prefix: str, marker: str, count: int) -> tuple[list[KnownQueue], str]:
        """Return queues in the order of their names, after a marker; and the marker of the next page, or nothing."""
        return paged(await self._tables.get(""), prefix, marker, count)

    # Masters

    def _alone(self, name: str) -> _Alone:
        return _Alone(self._changing, name, self._forget)

    def _forget(self, name: str) -> None:
        self._known.forget(name)
        self._tables.forget("")

    async def _ask(self, name: str) -> KnownQueue | None:
        found = await self._masters.look(name, some_master(await self._brokers.masters()))
        queue = _newest(name, found)
        if queue is not None and any(not _has(config, queue) for config in found.values()):
            self._repair(queue, found)
        return queue

    async def _ask_all(self, _: str) -> dict[str, KnownQueue]:
        masters = some_master(await self._brokers.masters())
        asked = [self._masters.ask(one, admin_requests.topic_table()) for one in masters.values()]
        merged: dict[str, KnownQueue] = {}
        for table in await asyncio.gather(*asked):
            for name, config in table.items():
                queue = attributes.of_topic(name, config.attributes)
                if queue is not None and (name not in merged or _age(queue) > _age(merged[name])):
                    merged[name] = queue
        return merged

    async def _first(self, queue: KnownQueue, found: Found) -> KnownQueue:
        """Write a new queue where it is decided who made it. Return the queue that counts."""
        masters = await self._brokers.masters()
        home = min(found)
        try:
            await self._put(masters[home], queue, found[home])
        except RefusedError as error:
            config = await self._masters.config(masters[home], queue.name)
            other = None if config is None else attributes.of_topic(queue.name, config.attributes)
            if other is None or other.incarnation == queue.incarnation:
                raise error
            return other
        return queue

    async def _write(self, queue: KnownQueue, found: Found) -> None:
        """Have all masters know a queue as it is given here."""
        masters = await self._brokers.masters()
        for name in sorted(found):
            if name in masters and not _has(found[name], queue):
                await self._put(masters[name], queue, found[name])

    async def _put(self, address: str, queue: KnownQueue, found: TopicConfig | None) -> None:
        if address not in self._grouped:
            config = GroupConfig(GROUP, retry_queues=PRIORITIES, retry_times_max=RETRIES_MAX)
            await self._masters.ask(address, admin_requests.put_group(config))
            self._grouped.add(address)
        old = None if found is None else attributes.of_topic(queue.name, found.attributes)
        if old is not None and old.incarnation != queue.incarnation:
            log.warning("%s: has the queue %s as it was before its deletion; deleted there too", address, queue.name)
            await self._masters.ask(address, admin_requests.delete_topic(queue.name))
            found = None
        count = PRIORITIES if found is None else max(PRIORITIES, found.read_queues, found.write_queues)
        wanted = attributes.stored(queue)
        if found is not None:
            wanted = {key: value for key, value in wanted.items() if found.attributes.get(key) != value}
        await self._masters.ask(address, admin_requests.alter_topic(TopicConfig(queue.name, count, count), wanted))

    def _repair(self, queue: KnownQueue, found: Found) -> None:
        if queue.name in self._repairs or len(self._repairs) >= _REPAIRS_MAX:
            return
        task = self._tasks.own(asyncio.create_task(self._repaired(queue, found)))
        self._repairs[queue.name] = task
        task.add_done_callback(lambda _: self._repairs.pop(queue.name, None))

    async def _repaired(self, queue: KnownQueue, found: Found) -> None:
        try:
            async with self._alone(queue.name):
                found = await self._masters.look(queue.name, await self._brokers.masters())
                newest = _newest(queue.name, found)
                if newest is not None:
                    await self._write(newest, found)
        except GantryError as error:
            log.info("queue %s: a master does not have it as the others do: %s", queue.name, error)


class _Alone:
    """One change of a queue at a time in this process; after it the queue is read again."""

    def __init__(self, turns: dict[str, _Turn], name: str, forget: Callable[[str], None]) -> None:
        self._turns, self._name, self._forget = turns, name, forget

    async def __aenter__(self) -> None:
        turn = self._turns.setdefault(self._name, _Turn())
        turn.callers += 1
        try:
            await turn.lock.acquire()
        except asyncio.CancelledError:
            self._left(turn)
            raise

    async def __aexit__(self, *_: object) -> None:
        turn = self._turns[self._name]
        turn.lock.release()
        self._left(turn)
        self._forget(self._name)

    def _left(self, turn: _Turn) -> None:
        turn.callers -= 1
        if not turn.callers:
            del self._turns[self._name]


class _Turn:
    """The lock of one queue, and how many have it or wait for it."""

    __slots__ = ("callers", "lock")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.callers = 0


def _newest(name: str, found: Found) -> KnownQueue | None:
    queues = [attributes.of_topic(name, config.attributes) for config in found.values() if config is not None]
    return max((queue for queue in queues if queue is not None), key=_age, default=None)


def _age(queue: KnownQueue) -> tuple[int, int, str]:
    return queue.created_s, queue.modified_s, queue.incarnation


def _has(config: TopicConfig | None, queue: KnownQueue) -> bool:
    if config is None or min(config.read_queues, config.write_queues) < PRIORITIES:
        return False
    return attributes.of_topic(queue.name, config.attributes) == queue
