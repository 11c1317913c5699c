"""The route table: which brokers are alive, and which queues of which topics they hold.

Nothing here is persistent or replicated.  Brokers register with every name server every 30 s with their complete
topics.  So a name server that starts empty is complete half a minute later, and name servers do not talk to each other.

A registration follows the rules of RocketMQ's RouteInfoManager, because brokers and clients of other vendors depend on
the details (facts 3.1):

    1  an address that was known under another id moves: a slave became master
    2  an id held by another address whose state version is greater stays with it: a late registration
       of a former master changes nothing, and is answered with success.  The address then loses the id that it
       had, unless the registration is older than the last one of the address (RocketMQ keeps that id for ever)
    3  an unknown id that brings exactly one topic is an incremental registration that overtook the
       first full one: refused, the full one follows
    4  queues are written by the master, or by the smallest slave of a group that asks for an acting
       master, which then may not be written to; and only when the version differs
    5  topics that a registration no longer names stay, unless configured otherwise

Unlike there, an address belongs to one group: when it registers under another name (a renamed broker, an address that
a machine lost and another one got), the former group loses it.  RocketMQ lists it under both for ever.  And a broker
unregisters only on the connection of its last registration: a goodbye that is late does not end its next life.

A single topic (REGISTER_TOPIC_IN_NAMESRV, 217) is taken for groups that are known.  If its sender tells an address, it
has to be the master's.

Two more rules concern the epochs of GantryMQ's groups, which are sent as the state version (`broker/docs/failover.md`).
They do not apply to static groups and to brokers of 4.x, whose state version is 0:
    6  a member that registers a higher epoch, under any id, takes id 0 from a holder with a lower epoch
    7  a master with a lower epoch than the group's never gets id 0, even when no member holds it; as in rule 2 it
       is answered with success, because it learns from its register that it is not the master

A broker is removed when it unregisters, after a silence (its own time-out, 120 s by default), and at once when the
connection of its last registration closes.  The end of an older connection has no effect.

Time is passed in, in milliseconds of a monotonic clock.  `link` identifies a connection and is only compared.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field

from gantry.errors import Refusal
from gantry.model.names import SYSTEM_TOPICS
from gantry.model.route import MASTER_ID, BrokerData, QueueData, TopicRoute
from gantry.model.topic import PERM_READ_WRITE, PERM_WRITE, DataVersion, TopicConfig
from gantry.nameserver.mappings import BYTES_MAX
from gantry.nameserver.topicqueues import TopicQueues
from gantry.wire.codes import ResponseCode

EXPIRY_MS = 120_000  # RocketMQ's DEFAULT_BROKER_CHANNEL_EXPIRED_TIME
_BROKERS_MAX = 10_000
_TOPICS_MAX = 500_000  # a queue entry costs some 300 bytes
_TEXT_MAX = 512  # characters of one name or address; a topic's name has 255 at most
_FILTER_SERVERS_MAX = 64


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """The contents of REGISTER_BROKER (103): the header and the decoded body."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str
    topics: dict[str, TopicConfig]
    version: DataVersion
    timeout_ms: int = EXPIRY_MS
    acting_master: bool | None = None  # None: the broker's version has no such field
    zone: str = ""
    filter_servers: tuple[str, ...] = ()
    mappings: dict[str, bytes] = field(default_factory=dict)  # topic -> TopicQueueMappingInfo as JSON, passed on
    queues: dict[str, QueueData] = field(default_factory=dict)  # what is made of topics already, by topic


@dataclass(frozen=True, slots=True)
class Registered:
    """The answer to a slave's registration; both texts are empty for a master, or when there is no master."""

    ha_address: str = ""
    master_address: str = ""


@dataclass(slots=True)
class _Group:
    """A master and its slaves."""

    cluster: str
    name: str
    addresses: dict[int, str] = field(default_factory=dict)
    acting_master: bool = False
    zone: str = ""
    epoch: int = 0  # the highest that a member registered
    taken: int = 0  # how often its topics were taken from a registration

    def to_data(self) -> BrokerData:
        return BrokerData(self.cluster, self.name, dict(sorted(self.addresses.items())), self.acting_master, self.zone)


@dataclass(slots=True)
class _Live:
    """The last registration of one address."""

    last_ms: int
    timeout_ms: int
    version: DataVersion
    link: object
    ha_address: str
    group: str


class RouteTable:
    """All registrations; every public method is one atomic step."""

    def __init__(self) -> None:
        self.since_ms = 0  # when the first of the brokers that it has had without a gap registered
        self.was_emptied_in_order = False  # the last broker unregistered, and none has registered since
        self._groups: dict[str, _Group] = {}
        self.topics = TopicQueues()
        self._live: dict[tuple[str, str], _Live] = {}  # (cluster, address)
        self._filter_servers: dict[str, tuple[str, ...]] = {}  # address -> filter servers (obsolete in RocketMQ)
    # Requests of brokers

    def register(
        self, news: BrokerRegistration, link: object, now_ms: int, forget_missing: bool = False
    ) -> Registered | Refusal:
        """Apply a registration; `forget_missing`: a master's complete one deletes missing topics (rule 5)."""
        refusal = self._refusal_of(news)
        if refusal is not None:
            return refusal
        known_as = self._live.get((news.cluster, news.address))
        if known_as is not None and known_as.group != news.broker_name:
            self._forget(news.cluster, known_as.group, news.address)
        if self._is_outdated(news):
            return Registered()
        if self._is_overruled(news):
            known = self.version_of(news.cluster, news.address)
            if known is None or known.state_version <= news.version.state_version:
                self._forget(news.cluster, news.broker_name, news.address)
            return Registered()
        group = self._groups.setdefault(news.broker_name, _Group(news.cluster, news.broker_name))
        self._raise_epoch(group, news.version.state_version)
        group.acting_master = bool(news.acting_master)
        group.zone = news.zone
        for broker_id in [known for known, address in group.addresses.items() if address == news.address]:
            if broker_id != news.broker_id:
                del group.addresses[broker_id]
        is_first = news.broker_id not in group.addresses
        group.addresses[news.broker_id] = news.address
        self._take_topics(news, group, is_first, forget_missing)
        if not self._live:
            self.since_ms, self.was_emptied_in_order = now_ms, False
        self._live[(news.cluster, news.address)] = _Live(
            now_ms, news.timeout_ms, news.version, link, news.ha_address, news.broker_name
        )
        if news.filter_servers:
            self._filter_servers[news.address] = news.filter_servers
        else:
            self._filter_servers.pop(news.address, None)
        return Registered() if news.broker_id == MASTER_ID else self._master_of(group)

    def register_topic(self, topic: str, queues: Sequence[QueueData], address: str = "") -> Refusal | None:
        """Set one topic's queues on groups that are registered; the version of their registration stays as it is.

        address: of the group's master, or empty when the sender does not tell it.
        """
        for data in queues:
            group = self._groups.get(data.broker_name)
            if group is None or (address and group.addresses.get(MASTER_ID) != address):
                return Refusal(ResponseCode.SYSTEM_ERROR, "register the broker first: it is not known as a master")
        if len(topic) > _TEXT_MAX or (topic not in self.topics and len(self.topics) >= _TOPICS_MAX):
            return Refusal(ResponseCode.SYSTEM_ERROR, f"{_TEXT_MAX} characters and {_TOPICS_MAX} topics are allowed")
        if topic and queues:
            self.topics.put(topic, queues)
        return None

    def unregister(self, cluster: str, broker_name: str, address: str, link: object) -> None:
        """Remove a broker's address; with the last address of a group its queues are removed too.

        Nothing happens when the address has registered on another connection since: that is the broker's next life.
        """
        live = self._live.get((cluster, address))
        if live is not None and (live.link is not link or live.group != broker_name):
            return
        self._forget(cluster, broker_name, address)
        if live is not None and not self._live:
            self.was_emptied_in_order = True

    def _forget(self, cluster: str, broker_name: str, address: str) -> None:
        self._live.pop((cluster, address), None)
        self._filter_servers.pop(address, None)
        group = self._groups.get(broker_name)
        if group is None:
            return
        group.addresses = {known: other for known, other in group.addresses.items() if other != address}
        if not group.addresses:
            del self._groups[broker_name]
            for topic in self.topics.topics_of(broker_name):
                self.topics.drop(topic, broker_name)
        elif group.acting_master and MASTER_ID not in group.addresses:
            self._change_perm(group, _without_writing)

    def refresh(self, cluster: str, address: str, now_ms: int, timeout_ms: int | None = None) -> None:
        """Extend the life of an address at a heartbeat; an address that never registered stays unknown."""
        live = self._live.get((cluster, address))
        if live is not None:
            live.last_ms = now_ms
            live.timeout_ms = timeout_ms or live.timeout_ms

    def version_of(self, cluster: str, address: str) -> DataVersion | None:
        """Return the version of an address's last registration; None when it is unknown."""
        live = self._live.get((cluster, address))
        return None if live is None else live.version

    def connection_closed(self, link: object) -> list[str]:
        """Unregister the brokers whose last registration came on this connection. Return their addresses."""
        return self._unregister_all([key for key, live in self._live.items() if live.link is link])

    def expire(self, now_ms: int) -> list[object]:
        """Unregister brokers that were silent for too long. Return their connections, which the caller closes."""
        silent = [key for key, live in self._live.items() if now_ms - live.last_ms > live.timeout_ms]
        links = [self._live[key].link for key in silent]
        self._unregister_all(silent)
        return links

    # Requests of tools

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic's queues, everywhere or in one cluster, until a broker that has it registers again."""
        for broker_name in list(self.topics.of(topic)):
            group = self._groups.get(broker_name)
            if cluster is None or (group is not None and group.cluster == cluster):
                self.topics.drop(topic, broker_name)

    def wiping_write_perm(self, broker_name: str) -> Generator[None, None, int]:
        """Make a group's topics read-only until its next changed registration, in slices. Return the number of topics.

        A changed registration that comes in between counts: what it brings is left as it is.
        """
        return self._changing_perm(broker_name, _without_writing)

    def adding_write_perm(self, broker_name: str) -> Generator[None, None, int]:
        """Make a group's topics readable and writable, in the same way. Return the number of topics."""
        return self._changing_perm(broker_name, lambda _: PERM_READ_WRITE)

    # Requests of clients

    def route(self, topic: str) -> TopicRoute | None:
        """Return where a topic's queues are; None when no living broker has any."""
        queues = sorted(self.topics.of(topic).items())
        groups = [self._groups[name] for name, _ in queues if name in self._groups]
        if not groups:
            return None
        addresses = [address for group in groups for address in group.addresses.values()]
        return TopicRoute(
            queues=tuple(data for _, data in queues),
            brokers=tuple(group.to_data() for group in groups),
            filter_servers={one: list(self._filter_servers[one]) for one in addresses if one in self._filter_servers},
        )

    def mappings(self, topic: str) -> bytes:
        """Return the topic's static queue mapping by broker name, as each broker registered it: JSON, or nothing."""
        return self.topics.mappings.of(topic)

    def system_topics(self) -> list[str]:
        """Return RocketMQ's own topics and the names of clusters and groups, which are topics too."""
        return sorted({*SYSTEM_TOPICS, *self.clusters(), *self._groups})

    def clusters(self) -> dict[str, list[str]]:
        """Return the names of the groups by cluster."""
        table: dict[str, list[str]] = {}
        for name, group in sorted(self._groups.items()):
            table.setdefault(group.cluster, []).append(name)
        return table

    def brokers(self) -> dict[str, BrokerData]:
        """Return the members' addresses by group name."""
        return {name: group.to_data() for name, group in sorted(self._groups.items())}

    @property
    def live_count(self) -> int:
        """The number of registered brokers."""
        return len(self._live)

    # The rules

    def _refusal_of(self, news: BrokerRegistration) -> Refusal | None:
        group = self._groups.get(news.broker_name)
        is_known = group is not None and news.broker_id in group.addresses
        if not is_known and len(news.topics) == 1:  # rule 3
            return Refusal(ResponseCode.SYSTEM_ERROR, "register broker failed")
        texts = (news.cluster, news.broker_name, news.address, news.ha_address, news.zone, *news.filter_servers)
        longest = max(map(len, (*texts, *news.topics)))
        if longest > _TEXT_MAX or len(news.filter_servers) > _FILTER_SERVERS_MAX:
            remark = f"a name or address has {longest} characters, {_TEXT_MAX} are allowed"
            return Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"{remark}; there are {len(news.filter_servers)} filter servers, {_FILTER_SERVERS_MAX} are allowed",
            )
        if (news.cluster, news.address) not in self._live and len(self._live) >= _BROKERS_MAX:
            return Refusal(ResponseCode.SYSTEM_ERROR, f"{_BROKERS_MAX} brokers are registered, no room for more")
        if not self.topics.mappings.has_room(news.broker_name, news.mappings):
            return Refusal(ResponseCode.SYSTEM_ERROR, f"no room for static mappings of more than {BYTES_MAX} bytes")
        if not self.topics.has_room(news.topics, _TOPICS_MAX):
            return Refusal(ResponseCode.SYSTEM_ERROR, f"no room for more than {_TOPICS_MAX} topics")
        return None

    def _is_overruled(self, news: BrokerRegistration) -> bool:
        """Return whether rule 2 ignores this registration."""
        group = self._groups.get(news.broker_name)
        holder = None if group is None else group.addresses.get(news.broker_id)
        if holder is None or holder == news.address:
            return False
        live = self._live.get((news.cluster, holder))
        return live is not None and live.version.state_version > news.version.state_version

    def _is_outdated(self, news: BrokerRegistration) -> bool:
        """Return whether rule 7 ignores this registration."""
        group = self._groups.get(news.broker_name)
        return group is not None and news.broker_id == MASTER_ID and news.version.state_version < group.epoch

    def _raise_epoch(self, group: _Group, epoch: int) -> None:
        """Apply rule 6: a higher epoch removes the holder of id 0 that has a lower one."""
        if epoch <= group.epoch:
            return
        group.epoch = epoch
        holder = group.addresses.get(MASTER_ID)
        if holder is None:
            return
        live = self._live.get((group.cluster, holder))
        if live is None or live.version.state_version < epoch:
            del group.addresses[MASTER_ID]
            self._live.pop((group.cluster, holder), None)
            if group.acting_master:
                self._change_perm(group, _without_writing)

    def _take_topics(self, news: BrokerRegistration, group: _Group, is_first: bool, forget_missing: bool) -> None:
        """Apply rules 4 and 5."""
        is_master = news.broker_id == MASTER_ID
        is_acting = group.acting_master and not is_master and news.broker_id == min(group.addresses)
        if not is_master and not is_acting:
            return
        is_changed = is_first or self.version_of(news.cluster, news.address) != news.version
        group.taken += is_changed
        if forget_missing and is_master and is_changed and not news.mappings and len(news.topics) != 1:
            for topic in self.topics.topics_of(group.name):
                if topic not in news.topics:
                    self.topics.drop(topic, group.name)
        self.topics.take(group.name, news.topics, news.queues, is_changed, is_read_only=is_acting)
        if is_changed:
            for topic, mapping in news.mappings.items():
                if group.name in self.topics.of(topic):  # otherwise never returned, and never removed
                    self.topics.mappings.keep(topic, group.name, mapping)

    def _master_of(self, group: _Group) -> Registered:
        address = group.addresses.get(MASTER_ID)
        live = None if address is None else self._live.get((group.cluster, address))
        return Registered() if live is None or address is None else Registered(live.ha_address, address)

    def _unregister_all(self, keys: Iterable[tuple[str, str]]) -> list[str]:
        gone = list(keys)
        for cluster, address in gone:
            self._forget(cluster, self._live[cluster, address].group, address)
        return [address for _, address in gone]

    def _change_perm(self, group: _Group, change: Callable[[int], int]) -> None:
        for _ in self.topics.changing_perm(group.name, change, lambda: False):
            pass

    def _changing_perm(self, broker_name: str, change: Callable[[int], int]) -> Generator[None, None, int]:
        group = self._groups.get(broker_name)
        taken = 0 if group is None else group.taken

        def is_over() -> bool:
            return self._groups.get(broker_name) is not group or (group is not None and group.taken != taken)

        return self.topics.changing_perm(broker_name, change, is_over)


def _without_writing(perm: int) -> int:
    return perm & ~PERM_WRITE
