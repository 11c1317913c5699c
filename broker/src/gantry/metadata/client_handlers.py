"""Requests of clients about themselves: HEART_BEAT (34), UNREGISTER_CLIENT (35), GET_CONSUMER_LIST_BY_GROUP (38),
CHECK_CLIENT_CONFIG (46).  RocketMQ: `ClientManageProcessor`, `ConsumerManageProcessor`.

A heartbeat creates a missing consumer group and its retry topic.  The shorter heartbeats of newer clients (by
fingerprint) are not supported: the reply does not offer them, so every heartbeat is complete.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gantry.clock import Clock
from gantry.errors import Refusal
from gantry.leaves.frames import Command
from gantry.metadata.clients import Clients, Consumption, GroupClient
from gantry.metadata.groups import Groups
from gantry.metadata.heartbeats import Heartbeats
from gantry.metadata.topics import Topics
from gantry.model import documents, names
from gantry.model.subscription import TAG_EXPRESSION, GroupConfig, Subscription
from gantry.model.topic import TOPIC_SYS_UNIT_SUB, TopicConfig
from gantry.wire import bodies, headers
from gantry.wire.codes import ResponseCode
from gantry.wire.command import refusal, reply
from gantry.wire.heartbeat import ConsumerData

if TYPE_CHECKING:
    from gantry.transport.connection import Connection


class ClientHandlers:
    """Handlers of requests that a client sends about itself."""

    def __init__(
        self,
        clients: Clients,
        topics: Topics,
        groups: Groups,
        clock: Clock,
        fault_of: Callable[[str, str], str | None],  # why an expression (type, text) that is not about tags is none
    ) -> None:
        self._clients = clients
        self._fault_of = fault_of
        self._topics = topics
        self._groups = groups
        self._clock = clock
        self._heartbeats = Heartbeats()

    def heartbeat(self, connection: Connection, command: Command) -> Command:
        """HEART_BEAT: register the client in all its groups."""
        beat = self._heartbeats.read(connection, command.body)
        member = GroupClient(beat.client_id, command.language, command.version, self._clock.monotonic())
        for consumer in beat.consumers:
            why = self._register_consumer(connection, member, consumer)
            if why is not None:
                return refusal(command, why)
        for group in beat.producer_groups:
            # RocketMQ does not look at the names of producer groups; ours must not grow without bound.
            why = None if names.group_fault(group) else self._clients.register_producer(connection, group, member)
            if why is not None:
                return refusal(command, why)
        return reply(command)

    def unregister(self, connection: Connection, command: Command) -> Command:
        """UNREGISTER_CLIENT: leave the groups that are named."""
        header = headers.parse(command.code, command.ext)
        if header.text("producerGroup"):
            self._clients.unregister_producer(connection, header.text("producerGroup"))
        if header.text("consumerGroup"):
            self._clients.unregister_consumer(connection, header.text("consumerGroup"))
        return reply(command)

    def consumer_list(self, connection: Connection, command: Command) -> Command:
        """GET_CONSUMER_LIST_BY_GROUP: among whom the queues are shared."""
        group = headers.parse(command.code, command.ext).text("consumerGroup")
        client_ids = self._clients.consumers(group)
        if not client_ids:
            remark = f"no consumer for this group, {group}"
            return reply(command, ResponseCode.SYSTEM_ERROR, remark)
        return reply(command, body=bodies.dumps({"consumerIdList": client_ids}))

    def check_config(self, connection: Connection, command: Command) -> Command:
        """CHECK_CLIENT_CONFIG: whether the broker can filter as this consumer wants."""
        try:
            subscription = Subscription.from_json(
                documents.mapping(bodies.asked(command.body), "subscriptionData")
            )
        except ValueError as error:
            raise bodies.MalformedBodyError(f"client configuration: {error}") from error
        if subscription.expression_type == TAG_EXPRESSION:
            return reply(command)
        fault = self._fault_of(subscription.expression_type, subscription.expression)
        if fault is None:
            return reply(command)
        # RocketMQ's clients show this text to their user.
        return reply(command, ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"Invalid MessageSelector. {fault}")

    def _register_consumer(self, connection: Connection, member: GroupClient, consumer: ConsumerData) -> Refusal | None:
        config = self._groups.ensure(consumer.group)
        if config is None:
            # RocketMQ: a group that may not be made is passed over; pulls of its consumers are answered with 26.
            return None
        self._ensure_retry_topic(config, consumer)
        return self._clients.register_consumer(
            connection,
            consumer.group,
            member,
            Consumption(consumer.consume_type, consumer.message_model, consumer.consume_from_where),
            [subscription for subscription in consumer.subscriptions if not names.topic_fault(subscription.topic)],
        )

    def _ensure_retry_topic(self, config: GroupConfig, consumer: ConsumerData) -> None:
        name = names.retry_topic(config.name)
        if config.retry_queues <= 0 or self._topics.get(name) is not None:
            return
        subscribed = [self._topics.get(subscription.topic) for subscription in consumer.subscriptions]
        self._topics.ensure(
            TopicConfig(
                name,
                read_queues=config.retry_queues,
                write_queues=config.retry_queues,
                sys_flag=TOPIC_SYS_UNIT_SUB if consumer.unit_mode else 0,
                order=any(topic.order for topic in subscribed if topic is not None),
            )
        )
