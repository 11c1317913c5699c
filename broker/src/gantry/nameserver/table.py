"""Which brokers live, and which queues of which topics they hold: the whole state of a name server.

Nothing here is persistent or agreed upon.  Brokers register with every name server every 30 s and carry
everything in each registration, so a name server that starts empty is complete half a minute later, and
name servers need not know each other.

What a registration does is decided by RocketMQ's RouteInfoManager, rule by rule, because brokers and
clients of other makes count on the details (facts 3.1):

    1  an address that was known under another id moves: a slave became master
    2  an id held by another address whose state version is greater stays with it: a late registration
       of a former master changes nothing, and is answered with success all the same; unless it is older than
       what is known of its address, the id that this had is given up (RocketMQ leaves it there for ever)
    3  an unknown id that brings exactly one topic is an incremental registration that overtook the
       first full one: refused, the full one follows
    4  queues are written by the master, or by the smallest slave of a group that asks for an acting
       master, which then may not be written to; and only when the version differs
    5  topics that a registration no longer names stay, unless configured otherwise

And by the epochs of our own groups, which travel as the state version (`broker/docs/failover.md`; a static group's, and
every broker's of 4.x, is 0, and then nothing of this ever applies):

    6  anyone who of a group brings a higher epoch takes id 0 from a holder of a lower one, whatever id he registers
    under 7  a master of a lower epoch than the group's never gets id 0, though nobody may hold it now; as in rule 2 it
    is
       answered with success, for it will learn from its register and not from us

A broker leaves by request, by silence (its own time-out, 120 s by default) or, at once, when the
connection it last registered on closes.  An old connection's end does not touch a broker that has
registered on a new one since.

Time is passed in, in milliseconds of a clock that does not go back.  `link` is whatever identifies a
connection; it is only ever compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from gantry.errors import Refusal
from gantry.model.names import SYSTEM_TOPICS
from gantry.model.route import MASTER_ID, BrokerData, QueueData, TopicRoute
from gantry.model.topic import PERM_READ_WRITE, PERM_WRITE, DataVersion, TopicConfig
from gantry.wire.codes import ResponseCode

EXPIRY_MS = 120_000  # RocketMQ's DEFAULT_BROKER_CHANNEL_EXPIRED_TIME
_BROKERS_MAX = 10_000
_TOPICS_MAX = 500_000  # a queue entry costs some 300 bytes
_TEXT_MAX = 512  # characters of one name or address; a topic's name has 255 at most
_FILTER_SERVERS_MAX = 64


@dataclass(frozen=True, slots=True)
class Registration:
    """What REGISTER_BROKER (103) says: the header, and the decoded body."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str
    topics: dict[str, TopicConfig]
    version: DataVersion
    timeout_ms: int = EXPIRY_MS
    acting_master: bool | None = None  # None: a broker that does not know the notion
    zone: str = ""
    filter_servers: tuple[str, ...] = ()
    mappings: dict[str, object] = field(default_factory=dict)  # topic -> TopicQueueMappingInfo, passed on as it came


@dataclass(frozen=True, slots=True)
class Registered:
    """What a slave learns from its registration; both empty for a master or without one."""

    ha_address: str = ""
    master_address: str = ""


@dataclass(slots=True)
class _Group:
    """One master and its slaves."""

    cluster: str
    name: str
    addresses: dict[int, str] = field(default_factory=dict)
    acting_master: bool = False
    zone: str = ""
    epoch: int = 0  # the highest that a member brought

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


class RouteTable:
    """All registrations; every public method is one atomic step."""

    def __init__(self) -> None:
        self.since_ms = 0  # when the first of the brokers that it has had without a gap registered
        self.was_emptied_in_order = False  # the last broker said goodbye, and nobody has come since
        self._groups: dict[str, _Group] = {}
        self._queues: dict[str, dict[str, QueueData]] = {}  # topic -> broker name -> its queues
        self._mappings: dict[str, dict[str, object]] = {}  # topic -> broker name -> static mapping
        self._live: dict[tuple[str, str], _Live] = {}  # (cluster, address)
        self._filter_servers: dict[str, tuple[str, ...]] = {}  # address -> filter servers, a thing of the past

    # What brokers say

    def register(
        self, news: Registration, link: object, now_ms: int, forget_missing: bool = False
    ) -> Registered | Refusal:
        """Take over a registration; `forget_missing` lets a master's full one delete topics (rule 5)."""
        refusal = self._refusal_of(news)
        if refusal is not None:
            return refusal
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
        self._live[(news.cluster, news.address)] = _Live(now_ms, news.timeout_ms, news.version, link, news.ha_address)
        if news.filter_servers:
            self._filter_servers[news.address] = news.filter_servers
        else:
            self._filter_servers.pop(news.address, None)
        return Registered() if news.broker_id == MASTER_ID else self._master_of(group)

    def unregister(self, cluster: str, broker_name: str, address: str) -> None:
        """A broker says goodbye: forget its address, and its group and their queues when it was the last."""
        was_known = (cluster, address) in self._live
        self._forget(cluster, broker_name, address)
        if was_known and not self._live:
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
            self._drop_queues(broker_name)
        elif group.acting_master and MASTER_ID not in group.addresses:
            self._change_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def refresh(self, cluster: str, address: str, now_ms: int, timeout_ms: int | None = None) -> None:
        """A sign of life without news; an address that never registered stays unknown."""
        live = self._live.get((cluster, address))
        if live is not None:
            live.last_ms = now_ms
            live.timeout_ms = timeout_ms or live.timeout_ms

    def version_of(self, cluster: str, address: str) -> DataVersion | None:
        """The version of an address's last registration."""
        live = self._live.get((cluster, address))
        return None if live is None else live.version

    def connection_closed(self, link: object) -> list[str]:
        """Unregister what registered on this connection last; gives back the addresses."""
        return self._unregister_all([key for key, live in self._live.items() if live.link is link])

    def expire(self, now_ms: int) -> list[object]:
        """Unregister what was silent too long; gives back the connections they registered on, to be closed."""
        silent = [key for key, live in self._live.items() if now_ms - live.last_ms > live.timeout_ms]
        links = [self._live[key].link for key in silent]
        self._unregister_all(silent)
        return links

    # What tools say

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic's queues, everywhere or in one cluster, until a broker that has it registers again."""
        for broker_name in list(self._queues.get(topic, {})):
            group = self._groups.get(broker_name)
            if cluster is None or (group is not None and group.cluster == cluster):
                self._drop_queues_of(topic, broker_name)

    def wipe_write_perm(self, broker_name: str) -> int:
        """Let clients stop writing to a group, until its next changed registration; the number of its topics."""
        return self._change_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Let clients write again; the number of topics."""
        return self._change_perm(broker_name, lambda _: PERM_READ_WRITE)

    # What clients ask

    def route(self, topic: str) -> TopicRoute | None:
        """Where a topic's queues are, or None when no living broker has any."""
        queues = sorted(self._queues.get(topic, {}).items())
        groups = [self._groups[name] for name, _ in queues if name in self._groups]
        if not groups:
            return None
        addresses = [address for group in groups for address in group.addresses.values()]
        return TopicRoute(
            queues=tuple(data for _, data in queues),
            brokers=tuple(group.to_data() for group in groups),
            filter_servers={one: list(self._filter_servers[one]) for one in addresses if one in self._filter_servers},
        )

    def mappings(self, topic: str) -> dict[str, object]:
        """Broker name -> the topic's static queue mapping there, as its broker registered it."""
        return dict(self._mappings.get(topic, {}))

    def topics(self, cluster: str | None = None) -> list[str]:
        """All topics, or those with queues in one cluster."""
        if cluster is None:
            return sorted(self._queues)
        names = {group.name for group in self._groups.values() if group.cluster == cluster}
        return sorted(topic for topic, queues in self._queues.items() if not names.isdisjoint(queues))

    def system_topics(self) -> list[str]:
        """RocketMQ's own topics, and those that each cluster and each group has under its name."""
        return sorted({*SYSTEM_TOPICS, *self.clusters(), *self._groups})

    def clusters(self) -> dict[str, list[str]]:
        """Cluster -> names of its groups."""
        table: dict[str, list[str]] = {}
        for name, group in sorted(self._groups.items()):
            table.setdefault(group.cluster, []).append(name)
        return table

    def brokers(self) -> dict[str, BrokerData]:
        """Name of a group -> its members' addresses."""
        return {name: group.to_data() for name, group in sorted(self._groups.items())}

    @property
    def live_count(self) -> int:
        """Brokers that are registered now."""
        return len(self._live)

    @property
    def has_queues(self) -> bool:
        """Whether a route of any topic is known: some group's master has registered."""
        return bool(self._queues)

    # The rules

    def _refusal_of(self, news: Registration) -> Refusal | None:
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
        if len(self._queues) + len(news.topics) > _TOPICS_MAX and len(self._queues.keys() | news.topics) > _TOPICS_MAX:
            return Refusal(ResponseCode.SYSTEM_ERROR, f"no room for more than {_TOPICS_MAX} topics")
        return None

    def _is_overruled(self, news: Registration) -> bool:
        """Rule 2."""
        group = self._groups.get(news.broker_name)
        holder = None if group is None else group.addresses.get(news.broker_id)
        if holder is None or holder == news.address:
            return False
        live = self._live.get((news.cluster, holder))
        return live is not None and live.version.state_version > news.version.state_version

    def _is_outdated(self, news: Registration) -> bool:
        """Rule 7."""
        group = self._groups.get(news.broker_name)
        return group is not None and news.broker_id == MASTER_ID and news.version.state_version < group.epoch

    def _raise_epoch(self, group: _Group, epoch: int) -> None:
        """Rule 6."""
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
                self._change_perm(group.name, lambda perm: perm & ~PERM_WRITE)

    def _take_topics(self, news: Registration, group: _Group, is_first: bool, forget_missing: bool) -> None:
        """Rules 4 and 5."""
        is_master = news.broker_id == MASTER_ID
        is_acting = group.acting_master and not is_master and news.broker_id == min(group.addresses)
        if not is_master and not is_acting:
            return
        is_changed = is_first or self.version_of(news.cluster, news.address) != news.version
        if forget_missing and is_master and is_changed and not news.mappings and len(news.topics) != 1:
            for topic in [one for one, queues in self._queues.items() if group.name in queues]:
                if topic not in news.topics:
                    self._drop_queues_of(topic, group.name)
        for topic, config in news.topics.items():
            queues = self._queues.setdefault(topic, {})
            if is_changed or group.name not in queues:
                perm = config.perm & ~PERM_WRITE if is_acting else config.perm
                queues[group.name] = QueueData(
                    group.name, config.read_queues, config.write_queues, perm, config.sys_flag
                )
        if is_changed:
            for topic, mapping in news.mappings.items():
                if group.name in self._queues.get(topic, ()):  # others are never shown, and nothing would remove them
                    self._mappings.setdefault(topic, {})[group.name] = mapping

    def _master_of(self, group: _Group) -> Registered:
        address = group.addresses.get(MASTER_ID)
        live = None if address is None else self._live.get((group.cluster, address))
        return Registered() if live is None or address is None else Registered(live.ha_address, address)

    def _unregister_all(self, keys: Iterable[tuple[str, str]]) -> list[str]:
        owners = {address: group.name for group in self._groups.values() for address in group.addresses.values()}
        gone = list(keys)
        for cluster, address in gone:
            self._forget(cluster, owners.get(address, ""), address)
        return [address for _, address in gone]

    def _drop_queues(self, broker_name: str) -> None:
        for topic in [one for one, queues in self._queues.items() if broker_name in queues]:
            self._drop_queues_of(topic, broker_name)

    def _drop_queues_of(self, topic: str, broker_name: str) -> None:
        queues = self._queues[topic]
        del queues[broker_name]
        self._mappings.get(topic, {}).pop(broker_name, None)
        if not queues:
            del self._queues[topic]
            self._mappings.pop(topic, None)

    def _change_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        count = 0
        for queues in self._queues.values():
            data = queues.get(broker_name)
            if data is not None:
                queues[broker_name] = replace(data, perm=change(data.perm))
                count += 1
        return count
