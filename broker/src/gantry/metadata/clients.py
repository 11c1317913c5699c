"""Connected clients: the producers and consumers of every group, by their heartbeats.

A registration belongs to a connection.  It ends when the client unregisters, when its connection closes, or when no
heartbeat came for two minutes.  Then the connection is closed as well, so that the client connects and registers
again.  A group without members is removed with its subscriptions.

A consumer group has one table of subscriptions for all its members.  The newest version of each topic's entry
is kept; a topic that the latest heartbeat does not name is dropped.  So two members that subscribe differently
overwrite each other's entries.  RocketMQ: `ConsumerGroupInfo` does the same, and its clients rely on being notified
when topics come and go.

Listeners of `on_change` are called when a group's members or topics changed; a newer version of a subscription alone
is not a change.  Listeners of `on_beat` get the content of every heartbeat.
Everything here is bounded, by number and in bytes, for each connection and for all: what does not fit is refused, never
evicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gantry.errors import Refusal
from gantry.model.subscription import BROADCASTING, Subscription
from gantry.wire.codes import ResponseCode

if TYPE_CHECKING:
    from gantry.transport.connection import Connection

# RocketMQ: ClientHousekeepingService scans every 10 s and closes what was silent for 120 s; clients beat every 30 s.
SILENCE_S_MAX = 120.0
_LOOKED_AT_ONCE = 32
# What an entry takes beside its texts, about.
_ENTRY_BYTES = 500


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits of what the broker stores for clients, in numbers and bytes."""

    registrations_max: int = 100_000
    groups_per_connection_max: int = 1_000
    topics_per_group_max: int = 10_000
    bytes_per_connection_max: int = 8 << 20  # of what its last heartbeats said, group by group
    bytes_max: int = 256 << 20  # of all client ids and subscriptions


@dataclass(slots=True)
class GroupClient:
    """One client in one group, on one connection."""

    client_id: str
    language: int
    version: int
    seen_at: float


@dataclass(frozen=True, slots=True)
class Consumption:
    """How a group consumes, by its clients' heartbeats; the same for all its members if they are well configured."""

    consume_type: str
    message_model: str
    consume_from_where: str

    @property
    def is_broadcasting(self) -> bool:
        """Whether every member gets every message."""
        return self.message_model == BROADCASTING


class ConsumerGroup:
    """The members of one consumer group and what they subscribe to."""

    __slots__ = ("bytes", "consumption", "members", "name", "subscriptions")

    def __init__(self, name: str, consumption: Consumption) -> None:
        self.name = name
        self.consumption = consumption
        self.members: dict[Connection, GroupClient] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.bytes = 0  # of the subscriptions

    def subscribe(self, wanted: Iterable[Subscription]) -> bool:
        """Take over the subscriptions of a heartbeat; return whether a topic came or went."""
        is_changed = False
        named = set()
        for subscription in wanted:
            named.add(subscription.topic)
            known = self.subscriptions.get(subscription.topic)
            if known is None or subscription.version > known.version:
                self.subscriptions[subscription.topic] = subscription
            is_changed |= known is None
        for topic in self.subscriptions.keys() - named:
            del self.subscriptions[topic]
            is_changed = True
        self.bytes = _bytes_of(self.subscriptions.values())
        return is_changed


Beat = Callable[["Connection", ConsumerGroup, Sequence[Subscription]], None]


class Clients:
    """All registrations of this broker, by group and by connection."""

    def __init__(self, limits: ClientLimits) -> None:
        self._limits = limits
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[Connection, GroupClient]] = {}
        # Groups by connection, with the bytes of each, so that a closed connection costs no scan of all groups.
        self._consuming: dict[Connection, dict[str, int]] = {}
        self._producing: dict[Connection, dict[str, int]] = {}
        self._said: dict[Connection, int] = {}
        self.bytes = 0  # of all of them, and of what groups keep of members that have gone
        self._producer_ids: dict[str, Connection] = {}  # the connection of a client id's last heartbeat
        self._produces_as: dict[Connection, str] = {}  # the client id of a connection's last heartbeat
        self._registrations = 0
        self._listeners: list[Callable[[ConsumerGroup], None]] = []
        self._beat_listeners: list[Beat] = []

    def on_change(self, listener: Callable[[ConsumerGroup], None]) -> None:
        """Register a listener for consumer groups whose members or topics changed; last without any members."""
        self._listeners.append(listener)

    def on_beat(self, listener: Beat) -> None:
        """Register a listener for the subscriptions of every heartbeat; called after they were taken over."""
        self._beat_listeners.append(listener)

    def register_producer(self, connection: Connection, group: str, member: GroupClient) -> Refusal | None:
        """Register a producer in this group, or renew its registration; return why not when a limit is reached."""
        members = self._producers.get(group, {})
        said = _member_bytes(member)
        refusal = self._why_full(connection, self._producing, group, said)
        if refusal is not None:
            return refusal
        if connection not in members:
            self._producers.setdefault(group, members)
            self._registrations += 1
        self.bytes += said - _member_bytes(members.get(connection))
        self._note(connection, self._producing, group, said)
        members[connection] = member
        if self._produces_as.get(connection) != member.client_id:
            self._forget_id(connection)
        self._produces_as[connection] = member.client_id
        self._producer_ids[member.client_id] = connection
        return None

    def register_consumer(
        self,
        connection: Connection,
        group: str,
        member: GroupClient,
        consumption: Consumption,
        subscriptions: Iterable[Subscription],
    ) -> Refusal | None:
        """Register a consumer in this group, or renew it; it subscribes to exactly these topics."""
        wanted = list(subscriptions)
        known = self._consumers.get(group)
        said = _member_bytes(member) + _bytes_of(wanted)
        refusal = self._why_full(connection, self._consuming, group, said)
        if refusal is None and len(wanted) > self._limits.topics_per_group_max:
            refusal = _full(f"group {group} subscribes to {len(wanted)} topics", self._limits.topics_per_group_max)
        if refusal is not None:
            return refusal
        entry = known or self._consumers.setdefault(group, ConsumerGroup(group, consumption))
        entry.consumption = consumption
        previous = entry.members.get(connection)
        self._registrations += previous is None
        self._note(connection, self._consuming, group, said)
        self.bytes -= entry.bytes + _member_bytes(previous)
        entry.members[connection] = member
        is_changed = entry.subscribe(wanted)
        self.bytes += entry.bytes + _member_bytes(member)
        if is_changed or previous is None or previous.client_id != member.client_id:
            self._tell(entry)
        for listener in self._beat_listeners:
            listener(connection, entry, wanted)
        return None

    def unregister_producer(self, connection: Connection, group: str) -> None:
        """Remove a connection's producer from the group; no effect when it is not registered."""
        members = self._producers.get(group)
        member = None if members is None else members.pop(connection, None)
        if members is None or member is None:
            return
        self._registrations -= 1
        self.bytes -= _member_bytes(member)
        self._discard(connection, self._producing, group)
        if connection not in self._producing:
            self._forget_id(connection)
        if not members:
            del self._producers[group]

    def unregister_consumer(self, connection: Connection, group: str) -> None:
        """Remove a connection's consumer from the group and call the listeners."""
        entry = self._consumers.get(group)
        member = None if entry is None else entry.members.pop(connection, None)
        if entry is None or member is None:
            return
        self._registrations -= 1
        self.bytes -= _member_bytes(member)
        self._discard(connection, self._consuming, group)
        if not entry.members:
            self.bytes -= entry.bytes
            del self._consumers[group]
        self._tell(entry)

    def connection_closed(self, connection: Connection) -> None:
        """Remove everything that was registered over this connection."""
        for group in sorted(self._consuming.get(connection, ())):
            self.unregister_consumer(connection, group)
        for group in sorted(self._producing.get(connection, ())):
            self.unregister_producer(connection, group)

    def expire(self, now: float) -> Iterator[None]:
        """Close the connections whose last heartbeat is too long ago (`now` in monotonic seconds), a few at a time:
        clients may come and go between two steps.
        """
        connections = list(dict.fromkeys([*self._consuming, *self._producing]))
        for number, connection in enumerate(connections, 1):
            if any(now - member.seen_at > SILENCE_S_MAX for member in self._registered(connection)):
                # First out of the tables: closing may or may not tell us before it returns.
                self.connection_closed(connection)
                connection.close(f"no heartbeat for {SILENCE_S_MAX:.0f} s")
                yield
            elif number % _LOOKED_AT_ONCE == 0:
                yield

    def _registered(self, connection: Connection) -> Iterator[GroupClient]:
        for group in self._consuming.get(connection, ()):
            yield self._consumers[group].members[connection]
        for group in self._producing.get(connection, ()):
            yield self._producers[group][connection]

    def consumer_group(self, group: str) -> ConsumerGroup | None:
        """The group if any consumer of it is online."""
        return self._consumers.get(group)

    def consumer_groups(self) -> Iterator[ConsumerGroup]:
        """Every group with a consumer online."""
        return iter(self._consumers.values())

    def consumers(self, group: str) -> list[str]:
        """The client ids of the group's consumers, each once, in order of arrival.

        A client that came back over a new connection may be here twice until the old one is noticed dead; clients
        share the queues among the ids they are told, so an id must not count twice.
        """
        entry = self._consumers.get(group)
        if entry is None:
            return []
        return list(dict.fromkeys(member.client_id for member in entry.members.values()))

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """Return the group's subscription to this topic; None when it has none."""
        entry = self._consumers.get(group)
        return None if entry is None else entry.subscriptions.get(topic)

    def consumer(self, group: str, client_id: str) -> tuple[Connection, GroupClient] | None:
        """The member of the group with this client id, on its newest connection."""
        entry = self._consumers.get(group)
        members = () if entry is None else reversed(entry.members.items())
        return next((found for found in members if found[1].client_id == client_id), None)

    def producers(self, group: str) -> Mapping[Connection, GroupClient]:
        """The producers of a group, by connection."""
        return self._producers.get(group, {})

    def producer_groups(self) -> list[str]:
        """Every group with a producer online."""
        return list(self._producers)

    def producer(self, client_id: str) -> Connection | None:
        """The connection of the producer with this client id, in whatever group it is."""
        return self._producer_ids.get(client_id)

    def counts(self) -> tuple[int, int]:
        """How many producer and how many consumer registrations there are."""
        consumers = sum(len(group.members) for group in self._consumers.values())
        return self._registrations - consumers, consumers

    def _why_full(
        self, connection: Connection, table: dict[Connection, dict[str, int]], group: str, said: int
    ) -> Refusal | None:
        known = table.get(connection, {}).get(group)
        more, of_connection = said - (known or 0), self._said.get(connection, 0)
        if more > 0 and of_connection + more > self._limits.bytes_per_connection_max:
            what = f"this connection's groups and subscriptions take {of_connection + more} bytes with {group}"
            return _full(what, self._limits.bytes_per_connection_max)
        if more > 0 and self.bytes + more > self._limits.bytes_max:
            what = f"all clients and subscriptions take {self.bytes + more} bytes with {group}"
            return _full(what, self._limits.bytes_max)
        if known is not None:
            return None
        if self._registrations >= self._limits.registrations_max:
            return _full(f"{self._registrations} clients are registered", self._limits.registrations_max)
        groups = len(self._consuming.get(connection, ())) + len(self._producing.get(connection, ()))
        if groups >= self._limits.groups_per_connection_max:
            return _full(f"this connection is in {groups} groups", self._limits.groups_per_connection_max)
        return None

    def _note(self, connection: Connection, table: dict[Connection, dict[str, int]], group: str, said: int) -> None:
        groups = table.setdefault(connection, {})
        self._said[connection] = self._said.get(connection, 0) + said - groups.get(group, 0)
        groups[group] = said

    def _discard(self, connection: Connection, table: dict[Connection, dict[str, int]], group: str) -> None:
        groups = table[connection]
        self._said[connection] -= groups.pop(group)
        if not groups:
            del table[connection]
        if not self._said[connection]:
            del self._said[connection]

    def _forget_id(self, connection: Connection) -> None:
        client_id = self._produces_as.pop(connection, None)
        if client_id is not None and self._producer_ids.get(client_id) is connection:
            del self._producer_ids[client_id]

    def _tell(self, group: ConsumerGroup) -> None:
        for listener in self._listeners:
            listener(group)


def _full(what: str, limit: int) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_BUSY, f"{what}, the limit is {limit}")


def _member_bytes(member: GroupClient | None) -> int:
    return 0 if member is None else _ENTRY_BYTES + len(member.client_id)


def _bytes_of(subscriptions: Iterable[Subscription]) -> int:
    """What subscriptions take, about: the expression is kept, and each of its tags."""
    return sum([_ENTRY_BYTES + len(one.topic) + 2 * len(one.expression) for one in subscriptions])
