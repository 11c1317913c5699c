"""Routes and assignments as gRPC clients see them.  Pure.

A client connects to the endpoints that its queues name.  It gets back the endpoints that it asked with, so it stays
with the address that reaches a proxy from where it is, or the advertised ones of the proxy.  The numbers of a broker's
queues count over its read-only, write-only and read-write queues, in this order (facts: protocol, section 10.5).

An assignment has the queue -1, any queue of that broker: the broker shares the messages out.  An orderly group gets
every readable queue.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping

from gantry.model import names
from gantry.model.route import MASTER_ID, QueueData, TopicRoute
from gantry.model.topic import PERM_READ, PERM_WRITE
from gantry.proxy import messaging_pb2 as pb
from gantry.proxy.faults import FaultError

ANY_QUEUE = -1
MESSAGE_TYPE = "message.type"  # the attribute of a topic
_TYPES: Mapping[str, tuple[pb.MessageType, ...]] = {
    "NORMAL": (pb.NORMAL,),
    "FIFO": (pb.FIFO,),
    "DELAY": (pb.DELAY,),
    "TRANSACTION": (pb.TRANSACTION,),
    "MIXED": (pb.NORMAL, pb.FIFO, pb.DELAY, pb.TRANSACTION),
}


def topic_name(topic: pb.Resource) -> str:
    """Return the name of a topic; FaultError ILLEGAL_TOPIC when a client may not name it."""
    fault = names.topic_fault(topic.name)
    if fault is not None:
        raise FaultError(pb.ILLEGAL_TOPIC, fault)
    if names.is_system_topic(topic.name):
        raise FaultError(pb.ILLEGAL_TOPIC, f"cannot access system topic {topic.name}")
    return topic.name


def group_name(group: pb.Resource) -> str:
    """Return the name of a consumer group; FaultError ILLEGAL_CONSUMER_GROUP when a client may not name it."""
    fault = names.group_fault(group.name)
    if fault is not None:
        raise FaultError(pb.ILLEGAL_CONSUMER_GROUP, fault)
    if names.is_system_group(group.name):
        raise FaultError(pb.ILLEGAL_CONSUMER_GROUP, f"cannot use consumer system group {group.name}")
    return group.name


def accepted(attributes: Mapping[str, str]) -> tuple[pb.MessageType, ...]:
    """Return the message types that a topic takes; RocketMQ: NORMAL only when its attributes do not say it."""
    return _TYPES.get(attributes.get(MESSAGE_TYPE, "NORMAL").upper(), (pb.MESSAGE_TYPE_UNSPECIFIED,))


def endpoints(asked: pb.Endpoints, advertised: pb.Endpoints | None) -> pb.Endpoints:
    """Return where a client finds the proxy: as advertised, else as it asked; FaultError when it named no address."""
    if advertised is not None:
        return advertised
    if not asked.addresses:
        raise FaultError(pb.ILLEGAL_ACCESS_POINT, "the request names no endpoints; set the client's endpoints")
    return asked


def endpoints_of(addresses: Iterable[tuple[str, int]]) -> pb.Endpoints:
    """Return addresses of host and port as endpoints."""
    found = pb.Endpoints(scheme=pb.DOMAIN_NAME)
    for host, port in addresses:
        found.addresses.add(host=host, port=port)
        try:
            found.scheme = pb.IPv4 if ipaddress.ip_address(host).version == 4 else pb.IPv6
        except ValueError:
            found.scheme = pb.DOMAIN_NAME
    return found


def queues(
    topic: pb.Resource, route: TopicRoute, where: pb.Endpoints, types: Iterable[pb.MessageType]
) -> list[pb.MessageQueue]:
    """Return all queues of a topic on brokers that have a master."""
    masters = {broker.broker_name for broker in route.brokers if broker.master is not None}
    found = []
    for data in sorted(route.queues, key=lambda one: one.broker_name):
        if data.broker_name not in masters:
            continue
        broker = pb.Broker(name=data.broker_name, id=MASTER_ID, endpoints=where)
        for queue_id, permission in enumerate(_permissions(data)):
            found.append(
                pb.MessageQueue(
                    topic=topic, id=queue_id, permission=permission, broker=broker, accept_message_types=types
                )
            )
    return found


def assignments(
    topic: pb.Resource, route: TopicRoute, where: pb.Endpoints, is_orderly: bool
) -> list[pb.Assignment]:
    """Return what every member of a group receives from; FaultError FORBIDDEN when no queue is readable."""
    masters = {broker.broker_name for broker in route.brokers if broker.master is not None}
    found = []
    for data in sorted(route.queues, key=lambda one: one.broker_name):
        if data.broker_name not in masters or not data.perm & PERM_READ or data.read_queues < 1:
            continue
        broker = pb.Broker(name=data.broker_name, id=MASTER_ID, endpoints=where)
        permission = _permission(data.perm)
        for queue_id in range(data.read_queues) if is_orderly else (ANY_QUEUE,):
            queue = pb.MessageQueue(topic=topic, id=queue_id, permission=permission, broker=broker)
            found.append(pb.Assignment(message_queue=queue))
    if not found:
        raise FaultError(pb.FORBIDDEN, f"no readable queue in topic {topic.name}; see gantry topic show {topic.name}")
    return found


def _permission(perm: int) -> pb.Permission:
    if perm & PERM_READ:
        return pb.READ_WRITE if perm & PERM_WRITE else pb.READ
    return pb.WRITE if perm & PERM_WRITE else pb.NONE


def _permissions(data: QueueData) -> list[pb.Permission]:
    permission = _permission(data.perm)
    reads, writes = max(0, data.read_queues), max(0, data.write_queues)
    if permission == pb.READ_WRITE:
        both = min(reads, writes)
        return [pb.READ] * (reads - both) + [pb.WRITE] * (writes - both) + [pb.READ_WRITE] * both
    if permission == pb.READ:
        return [pb.READ] * reads
    if permission == pb.WRITE:
        return [pb.WRITE] * writes
    return [pb.NONE] * max(1, reads, writes)
