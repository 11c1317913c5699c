"""Administration: topics, groups, progress, and finding messages.

    async with Admin(nameserver="127.0.0.1:9876") as admin:
        await admin.create_topic("Orders", queues=8)
        for progress in await admin.progress("billing", "Orders"):
            print(progress.queue, progress.lag)

Topics and groups exist on every broker group of a cluster.  A method that changes them asks all masters, one after the
other, and raises the error of the first that fails; calling it again is safe.  A method that only reads asks a slave
when the master does not answer.  Without a cluster name a method applies to all clusters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Self, TypeVar

from gantry.client import grouplags
from gantry.client.changes import Change, Changes, summed
from gantry.client.connections.replicas import Replicas
from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.consuming.offsets import RemoteOffsets
from gantry.client.lifecycle import Lifecycle
from gantry.client.requests import admin_requests, delay_requests, lag_requests, questions, store_requests, tx_requests
from gantry.client.requests.admin_requests import Cluster
from gantry.client.requests.delay_requests import DelayedInfo
from gantry.client.requests.lag_requests import ClientConnection, QueueLag, Target
from gantry.client.requests.question import Question
from gantry.client.requests.store_requests import RetentionInfo
from gantry.client.requests.tx_requests import TransactionInfo
from gantry.client.results import QueueProgress
from gantry.errors import OutcomeUnknownError, RefusedError, UnreachableError
from gantry.leaves.records import parse_offset_message_id
from gantry.model.message import StoredMessage
from gantry.model.names import group_fault, topic_fault
from gantry.model.route import MASTER_ID, MessageQueue, TopicRoute
from gantry.model.subscription import GroupConfig
from gantry.model.topic import PERM_READ_WRITE, TopicConfig
from gantry.wire.codes import ResponseCode

__all__ = [
    "Admin",
    "Change",
    "ClientConnection",
    "Cluster",
    "DelayedInfo",
    "QueueLag",
    "QueueProgress",
    "RetentionInfo",
    "Target",
    "TransactionInfo",
]

T = TypeVar("T")

Addresses = Mapping[int, str]  # of a group's members, by id

_EVER_MS = (0, (1 << 63) - 1)
_UNIQUE_COUNT = 32  # RocketMQ: brokers answer a query by unique id with at most this many


class Admin:
    """Asks name servers and brokers; an asynchronous context manager, or start() and stop() once each."""

    def __init__(self, *, nameserver: str | Sequence[str], timeout_s: float = 5.0) -> None:
        self._session = Session(nameserver, timeout_s=timeout_s)
        self._routes = Routes(self._session)
        self._life = Lifecycle("admin", self._session)
        self._replicas = Replicas(self._session, self._routes)
        self._timeout_s = timeout_s
        self._changes = Changes(self._session, timeout_s)

    async def start(self) -> None:
        """Start; connections are made when they are needed."""
        await self._life.start()

    async def stop(self) -> None:
        await self._life.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._life.leave(error)

    # The cluster

    async def cluster(self) -> Cluster:
        """Return which brokers are registered at the name server."""
        return await self._session.ask_nameserver(admin_requests.cluster_info())

    async def runtime_info(self, address: str) -> dict[str, str]:
        """Return a broker's runtime figures, with RocketMQ's names."""
        return await self._ask(address, admin_requests.runtime_info())

    # Topics

    async def topics(self) -> list[str]:
        """Return the names of all topics in order, RocketMQ's own ones included."""
        found = await self._session.ask_nameserver(admin_requests.topic_list())
        return sorted(found)

    async def route(self, topic: str) -> TopicRoute:
        """Return where a topic's queues are; RefusedError 17 when no broker has the topic."""
        self._routes.doubt(topic)
        return await self._routes.route(topic)

    async def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        perm: int = PERM_READ_WRITE,
        cluster: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> Change:
        """Create a topic with so many queues on each broker group, or change one. Return which was done.

        Attributes are set; those that are not named keep their values.
        """
        _refuse(topic_fault(topic))
        config = TopicConfig(topic, queues, queues, perm, attributes=dict(attributes or {}))
        return summed([await self._changes.put_topic(address, config) for address in await self._masters(cluster)])

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> bool:
        """Delete a topic with its messages on all brokers, then its routes on every name server.

        Return False when no broker had it; it is sent even so, as a former attempt may have left a route or queues.
        """
        _refuse(topic_fault(topic))
        deleted = [await self._changes.delete_topic(address, topic) for address in await self._masters(cluster)]
        for nameserver in self._session.nameservers:
            await self._ask(nameserver, admin_requests.delete_topic_route(topic))
        self._routes.doubt(topic)
        return any(deleted)

    # Groups and their progress

    async def groups(self) -> dict[str, GroupConfig]:
        """Return all consumer groups by name; where brokers differ, with the first broker's configuration."""
        found: dict[str, GroupConfig] = {}
        for members in (await self._groups()).values():
            for name, config in (await self._look(members, admin_requests.group_list())).items():
                found.setdefault(name, config)
        return found

    async def create_group(self, group: str | GroupConfig, *, cluster: str | None = None) -> Change:
        """Create a consumer group, or change an existing one. Return which was done."""
        config = GroupConfig(group) if isinstance(group, str) else group
        _refuse(group_fault(config.name))
        return summed([await self._changes.put_group(address, config) for address in await self._masters(cluster)])

    async def delete_group(self, group: str, *, clean_offsets: bool = True, cluster: str | None = None) -> bool:
        """Delete a consumer group, by default with its offsets. Return False when no broker had it."""
        _refuse(group_fault(group))
        masters = await self._masters(cluster)
        return any([await self._changes.delete_group(address, group, clean_offsets) for address in masters])

    async def members(self, group: str) -> list[str]:
        """Return the client ids of a group's present members, on any broker."""
        found: set[str] = set()
        for replicas in (await self._groups()).values():
            try:
                members = await self._look(replicas, questions.members(group))
                found.update(members)
            except RefusedError as error:
                # RocketMQ: a broker without members of the group answers SYSTEM_ERROR.
                if error.code != ResponseCode.SYSTEM_ERROR:
                    raise
        return sorted(found)

    async def consumed_topics(self, group: str) -> list[str]:
        """Return the topics in which a group has committed offsets."""
        found: set[str] = set()
        for members in (await self._groups()).values():
            for key in await self._look(members, admin_requests.offset_table()):
                topic, _, owner = key.partition("@")
                if owner == group:
                    found.add(topic)
        return sorted(found)

    async def progress(self, group: str, topic: str) -> list[QueueProgress]:
        """Return a group's offsets in each queue of a topic."""
        offsets = RemoteOffsets(self._session, self._routes, group, self._replicas)
        route = await self.route(topic)
        return [await self._progress(offsets, queue) for queue in route.queues_to_read(topic)]

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set a group's committed offset; running members continue from their own position."""
        await self.route(queue.topic)
        await RemoteOffsets(self._session, self._routes, group).commit(queue, offset)

    async def lag(self, *, group: str = "", topic: str = "") -> list[QueueLag]:
        """Return the lag of every group in every queue that it consumes, or of one group or one topic only.

        A queue in which a group has not begun counts whole, also on a broker that has the topic and does not know yet
        that the group reads it.
        """
        return await grouplags.of_all(await self._groups(), self._look, group, topic)

    async def reset(
        self, group: str, topic: str, target: Target, *, broker: str | None = None
    ) -> dict[MessageQueue, int]:
        """Move a group's offsets on every master of the topic, or on one; running members move too. Return them.

        RocketMQ's brokers before 5.1 support times only: they take an offset as the time 0.
        """
        found: dict[MessageQueue, int] = {}
        for one in (await self.route(topic)).brokers:
            if one.master is not None and broker in (None, one.broker_name):
                moved = await self._ask(one.master, lag_requests.reset(group, topic, target))
                found.update(moved)
        return found

    async def consumer_connections(self, group: str) -> dict[str, list[ClientConnection]]:
        """Return the members of a consumer group, by broker."""
        question = lag_requests.consumer_connections(group)
        return {name: await self._look(members, question) for name, members in (await self._groups()).items()}

    async def producer_connections(self, group: str) -> dict[str, list[ClientConnection]]:
        """Return the members of a producer group, by broker."""
        question = lag_requests.producer_connections(group)
        return {name: await self._look(members, question) for name, members in (await self._groups()).items()}

    async def running_info(self, group: str, client_id: str) -> dict[str, object]:
        """Return what a member of a consumer group reports about itself; RefusedError when no broker can reach it."""
        failure: RefusedError | None = None
        for members in (await self._groups()).values():
            try:
                return await self._look(members, lag_requests.running_info(group, client_id))
            except RefusedError as error:
                failure = error
        assert failure is not None, "there is at least one group"
        raise failure

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after a time (ms since the epoch)."""
        await self.route(queue.topic)
        return await RemoteOffsets(self._session, self._routes, "", self._replicas).offset_at(queue, timestamp_ms)

    # Messages

    async def message_by_offset_id(self, offset_message_id: str) -> StoredMessage | None:
        """Return the message with an id that a broker gave; None when there is none."""
        host, port, log_offset = parse_offset_message_id(offset_message_id)
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        groups = (await self.cluster()).groups
        broker = next((name for name, group in groups.items() if address in group.addresses.values()), "")
        others = groups[broker].addresses if broker else {}
        members = {MASTER_ID: address} | {one: other for one, other in others.items() if one and other != address}
        return await self._look(members, admin_requests.message_at(log_offset, broker_name=broker))

    async def messages_by_id(self, topic: str, message_id: str) -> list[StoredMessage]:
        """Return all copies of the message with an id that its producer gave."""
        return await self._find(topic, message_id, _UNIQUE_COUNT, _EVER_MS, is_unique=True)

    async def messages_by_key(
        self, topic: str, key: str, *, count_max: int = 64, begin_ms: int = _EVER_MS[0], end_ms: int = _EVER_MS[1]
    ) -> list[StoredMessage]:
        """Return messages of a topic with a key, stored between two times (ms since the epoch)."""
        return await self._find(topic, key, count_max, (begin_ms, end_ms))

    # Transactions

    async def transactions(
        self, state: str = tx_requests.OPEN, *, group: str = "", topic: str = "", count_max: int = 1000
    ) -> list[TransactionInfo]:
        """Return the oldest transactions of each broker group in a state: "open" or "given-up"."""
        found: list[TransactionInfo] = []
        for broker, address in (await self._masters_by_name()).items():
            of_broker: list[TransactionInfo] = []
            following = 0
            while following >= 0 and len(of_broker) < count_max:
                question = tx_requests.listed(broker, state, following, group, topic)
                page = await self._ask(address, question)
                of_broker += page.transactions
                following = page.following
            found += of_broker[:count_max]
        return found

    async def delayed(self, *, topic: str = "", count_max: int = 1000) -> list[DelayedInfo]:
        """Return messages that wait for their delivery, at most `count_max` of each broker group."""
        found: list[DelayedInfo] = []
        for broker, address in (await self._masters_by_name()).items():
            of_broker: list[DelayedInfo] = []
            following = 0
            while following >= 0 and len(of_broker) < count_max:
                page = await self._ask(address, delay_requests.listed(broker, following, topic))
                of_broker += page.delayed
                following = page.following
            found += of_broker[:count_max]
        return found

    async def cancel_delayed(self, wanted: str, operator: str) -> bool:
        """Cancel the delivery of the message with this message id or offset id. Return False for none."""
        asked = [
            await self._ask(address, delay_requests.cancelled(wanted, operator))
            for address in (await self._masters_by_name()).values()
        ]
        return any(asked)

    async def retention(self) -> list[RetentionInfo]:
        """Return each broker group's disk usage and the segments that `delete_expired` would delete."""
        groups = await self._groups()
        return [await self._look(members, store_requests.retention(broker)) for broker, members in groups.items()]

    async def delete_expired(self, broker: str | None = None) -> None:
        """Delete expired messages now instead of at the configured hour, on one broker group or on all."""
        for name, address in (await self._masters_by_name()).items():
            if broker is None or name == broker:
                for question in (
                    store_requests.delete_expired(), store_requests.clean_queues(), store_requests.clean_topics()
                ):
                    await self._ask(address, question)

    async def group_violations(self) -> list[str]:
        """Return a sentence for each transactional producer group that other kinds of producers use too."""
        found: set[str] = set()
        for broker, address in (await self._masters_by_name()).items():
            found.update((await self._ask(address, tx_requests.listed(broker, "open", 0, "", ""))).violations)
        return sorted(found)

    async def find_transactions(self, wanted: str) -> list[TransactionInfo]:
        """Return the transactions with a message id, offset message id or root, on all brokers."""
        found = [
            await self._ask(address, tx_requests.shown(broker, wanted))
            for broker, address in (await self._masters_by_name()).items()
        ]
        return [one for one in found if one is not None]

    async def settle_transaction(self, found: TransactionInfo, action: str, operator: str) -> None:
        """Commit, roll back or "rearm" a transaction; RefusedError when another outcome was decided."""
        address = (await self._masters_by_name())[found.broker]
        await self._ask(address, tx_requests.settled(str(found.root), action, operator))

    async def _find(
        self, topic: str, key: str, count_max: int, span_ms: tuple[int, int], is_unique: bool = False
    ) -> list[StoredMessage]:
        asked = [
            self._look(one.addresses, admin_requests.by_key(topic, key, count_max, span_ms, is_unique, one.broker_name))
            for one in (await self.route(topic)).brokers
        ]
        found = await asyncio.gather(*asked)
        return sorted((one for part in found for one in part), key=lambda one: one.store_ms)

    async def _progress(self, offsets: RemoteOffsets, queue: MessageQueue) -> QueueProgress:
        committed = await offsets.committed(queue)
        return QueueProgress(
            queue,
            await offsets.min_offset(queue),
            await offsets.max_offset(queue),
            -1 if committed is None else committed,
        )

    async def _masters(self, cluster: str | None) -> list[str]:
        return list((await self._masters_by_name(cluster)).values())

    async def _masters_by_name(self, cluster: str | None = None) -> dict[str, str]:
        masters = (await self.cluster()).masters(cluster)
        if not masters:
            where = "anywhere" if cluster is None else f"in cluster {cluster}"
            raise UnreachableError(f"no master {where} is registered at {', '.join(self._session.nameservers)}")
        return {name: masters[name] for name in sorted(masters)}

    async def _groups(self) -> dict[str, Addresses]:
        """Return the members' addresses of each group; UnreachableError when no broker is registered."""
        groups = (await self.cluster()).groups
        if not groups:
            raise UnreachableError(f"no broker is registered at {', '.join(self._session.nameservers)}")
        return {name: groups[name].addresses for name in sorted(groups)}

    async def _look(self, members: Addresses, question: Question[T]) -> T:
        """Return the master's answer, or a slave's when it is unreachable; the first error when none answers."""
        failure: UnreachableError | OutcomeUnknownError | None = None
        for _, address in sorted(members.items()):
            try:
                return await self._ask(address, question)
            except (UnreachableError, OutcomeUnknownError) as error:
                failure = failure or error
        assert failure is not None, "a group has members"
        raise failure

    async def _ask(self, address: str, question: Question[T]) -> T:
        return await self._session.ask(address, question, self._timeout_s)


def _refuse(fault: str | None) -> None:
    if fault is not None:
        raise ValueError(fault)
