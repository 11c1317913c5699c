"""Requests of administration (facts: protocol, sections 2.13 to 2.20, 3 and 14)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gantry.client.requests.question import Question, document, nothing, require, value
from gantry.leaves.frames import Command
from gantry.model import documents
from gantry.model.message import StoredMessage
from gantry.model.names import TEMPLATE_TOPIC
from gantry.model.route import BrokerData
from gantry.model.subscription import GroupConfig
from gantry.model.topic import TopicConfig
from gantry.wire import bodies, record
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import request
from gantry.wire.headers import to_ext


@dataclass(frozen=True, slots=True)
class Cluster:
    """All broker groups that a name server knows, and the groups of each cluster."""

    groups: dict[str, BrokerData]
    clusters: dict[str, tuple[str, ...]]

    def masters(self, cluster: str | None = None) -> dict[str, str]:
        """Return the masters' addresses by group, of one cluster or of all; groups without a master are omitted."""
        names = self.groups if cluster is None else self.clusters.get(cluster, ())
        found = {name: self.groups[name].master for name in names if name in self.groups}
        return {name: address for name, address in found.items() if address is not None}


def cluster_info() -> Question[Cluster]:
    """Ask for the registered brokers."""

    def make(source: object) -> Cluster:
        body = documents.document(source, "cluster info")
        groups = documents.mapping(body, "brokerAddrTable")
        clusters = documents.mapping(body, "clusterAddrTable")
        return Cluster(
            {name: BrokerData.from_json(data) for name, data in groups.items()},
            {name: tuple(map(str, documents.array(clusters, name))) for name in clusters},
        )

    return Question(request(RequestCode.GET_BROKER_CLUSTER_INFO), lambda reply: value(require(reply), make))


def topic_list() -> Question[list[str]]:
    """Ask a name server for all topics."""

    def make(source: object) -> list[str]:
        return [str(one) for one in documents.array(documents.document(source, "a topic list"), "topicList")]

    return Question(request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), lambda reply: value(require(reply), make))


def put_topic(config: TopicConfig) -> Question[None]:
    """Create or change a topic on one broker."""
    return alter_topic(config, config.attributes)


def alter_topic(config: TopicConfig, attributes: Mapping[str, str | None]) -> Question[None]:
    """Create or change a topic with these changes of attributes only; None removes one. Some cannot be set twice."""
    steps = [f"-{key}" if text is None else f"+{key}={text}" for key, text in attributes.items()]
    ext = to_ext(
        topic=config.name,
        defaultTopic=TEMPLATE_TOPIC,
        readQueueNums=config.read_queues,
        writeQueueNums=config.write_queues,
        perm=config.perm,
        topicFilterType=config.filter_type,
        topicSysFlag=config.sys_flag,
        order=config.order,
        attributes=",".join(steps) or None,
    )
    return Question(request(RequestCode.UPDATE_AND_CREATE_TOPIC, ext), nothing)


def topic_config(topic: str) -> Question[TopicConfig]:
    """Ask one broker for a topic's configuration; RefusedError 17 when it does not have the topic."""
    question = request(RequestCode.GET_TOPIC_CONFIG, {"topic": topic})
    return Question(question, lambda reply: value(require(reply), TopicConfig.from_json))


def topic_table() -> Question[dict[str, TopicConfig]]:
    """Ask one broker for all its topics."""

    def make(source: object) -> dict[str, TopicConfig]:
        table = documents.mapping(documents.document(source, "a topic table"), "topicConfigTable")
        return {name: TopicConfig.from_json(config) for name, config in table.items()}

    return Question(request(RequestCode.GET_ALL_TOPIC_CONFIG), lambda reply: value(require(reply), make))


def delete_topic(topic: str) -> Question[None]:
    """Delete a topic and its queues on one broker."""
    return Question(request(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}), nothing)


def delete_topic_route(topic: str) -> Question[None]:
    """Delete a topic's route on one name server."""
    return Question(request(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic}), nothing)


def put_group(config: GroupConfig) -> Question[None]:
    """Create or change a consumer group on one broker."""
    body = bodies.dumps(config.to_json())
    return Question(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body), nothing)


def group_list() -> Question[dict[str, GroupConfig]]:
    """Ask one broker for all its groups."""

    def make(source: object) -> dict[str, GroupConfig]:
        table = documents.mapping(documents.document(source, "a group table"), "subscriptionGroupTable")
        return {name: GroupConfig.from_json(config) for name, config in table.items()}

    return Question(request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG), lambda reply: value(require(reply), make))


def group_config(group: str) -> Question[GroupConfig]:
    """Ask one broker for a group's configuration; RefusedError 26 when it does not have the group."""
    question = request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": group})
    return Question(question, lambda reply: value(require(reply), GroupConfig.from_json))


def delete_group(group: str, clean_offsets: bool) -> Question[None]:
    """Delete a group on one broker, with or without its offsets."""
    ext = to_ext(groupName=group, cleanOffset=clean_offsets)
    return Question(request(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext), nothing)


def runtime_info() -> Question[dict[str, str]]:
    """Ask a broker for its runtime figures."""

    def read(reply: Command) -> dict[str, str]:
        table = document(require(reply)).get("table")
        return {key: str(text) for key, text in table.items()} if isinstance(table, Mapping) else {}

    return Question(request(RequestCode.GET_BROKER_RUNTIME_INFO), read)


def offset_table() -> Question[dict[str, dict[int, int]]]:
    """Ask one broker for all committed offsets: `topic@group` -> queue -> offset."""

    def make(source: object) -> dict[str, dict[int, int]]:
        table = documents.mapping(documents.document(source, "an offset table"), "offsetTable")
        rows = {key: documents.mapping(table, key) for key in table}
        return {key: {int(queue): documents.integer(row, queue) for queue in row} for key, row in rows.items()}

    return Question(request(RequestCode.GET_ALL_CONSUMER_OFFSET), lambda reply: value(require(reply), make))


def message_at(log_offset: int, topic: str = "", broker_name: str = "") -> Question[StoredMessage | None]:
    """Ask for the message that begins at a log offset; None when none does."""

    def read(reply: Command) -> StoredMessage | None:
        if reply.code == ResponseCode.SYSTEM_ERROR:
            return None
        found = record.messages(require(reply).body, broker_name)
        return found[0] if found else None

    return Question(request(RequestCode.VIEW_MESSAGE_BY_ID, to_ext(offset=log_offset, topic=topic or None)), read)


def by_key(
    topic: str, key: str, count_max: int, span_ms: tuple[int, int], is_unique: bool, broker_name: str
) -> Question[list[StoredMessage]]:
    """Ask for the messages of a topic with a key or a unique id, stored within [begin, end] ms; without hash
    collisions.

    A reply does not name its broker: the messages are marked with `broker_name`.
    """

    def read(reply: Command) -> list[StoredMessage]:
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        found = record.messages(require(reply).body, broker_name)
        mine = [one for one in found if one.topic == topic]
        return [one for one in mine if (one.message_id == key if is_unique else key in one.keys)]

    ext = to_ext(topic=topic, key=key, maxNum=count_max, beginTimestamp=span_ms[0], endTimestamp=span_ms[1])
    if is_unique:
        ext["_UNIQUE_KEY_QUERY"] = "true"
    return Question(request(RequestCode.QUERY_MESSAGE, ext), read)
