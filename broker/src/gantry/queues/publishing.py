"""Messages on their way into an HTTP topic.

A published message is an ordinary message of the broker's topic: it is answered when it is confirmed, other groups of
any protocol read it, and what forwards it to the subscribers reads it from there (`fanout`).  MessageTag is its tag.
A failed attempt is repeated at another broker with the same message id; after a lost answer it may be there twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gantry.client.outgoing import JOIN_BYTES_MAX, Outgoing
from gantry.client.producing.gathering import Gathering
from gantry.client.producing.selector import Turn
from gantry.client.producing.sending import Sender
from gantry.client.requests import questions
from gantry.client.requests.question import Question
from gantry.client.results import SendResult
from gantry.client.settings import ProducerSettings
from gantry.gateway.brokers import Brokers
from gantry.leaves import properties
from gantry.leaves.frames import Command
from gantry.model.message import TAGS, UNIQUE_KEY
from gantry.model.route import MessageQueue
from gantry.queues.faults import invalid
from gantry.queues.sending import IN_FLIGHT_MAX, SEND_S, PostedMessage, md5
from gantry.queues.subscriptions import KnownTopic
from gantry.queues.topictable import no_topic
from gantry.wire.codes import ResponseCode

_SENDER = "gantry-topics"  # producer group


class Publishes:
    """Publishes for all topics."""

    def __init__(self, brokers: Brokers, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._ids = brokers.ids
        self._turn = Turn(brokers.random.randrange(1 << 16))
        settings = ProducerSettings(in_flight_max=IN_FLIGHT_MAX)
        gathering = Gathering(brokers.session, _SENDER)
        self._sender = Sender(brokers.session, brokers.routes, settings, brokers.random, gathering)

    async def publish(
        self, topic: KnownTopic, body: bytes, tag: str, more: Mapping[str, str], within_s: float = SEND_S
    ) -> PostedMessage:
        """Store one message; QueueFaultError when it is invalid, and the errors of sends. more: further properties."""
        if not body:
            raise invalid("MessageBody is missing or empty")
        if len(body) > topic.settings.size_max:
            raise invalid(f"MessageBody has {len(body)} bytes, the topic allows {topic.settings.size_max}")
        message_id = self._ids.next()
        pairs = {**more, UNIQUE_KEY: message_id}
        if tag:
            pairs[TAGS] = tag
        outgoing = Outgoing(
            topic.name,
            body,
            properties.pack(pairs),
            (message_id,),
            self._now_ms(),
            may_join=len(body) <= JOIN_BYTES_MAX,
            may_make_topic=False,
        )
        await self._sender.send(outgoing, self._turn.select, _ask, within_s)
        return PostedMessage(message_id, md5(body))


def _ask(outgoing: Outgoing, queue: MessageQueue) -> Question[SendResult]:
    question = questions.send(_SENDER, outgoing, queue)

    def read(reply: Command) -> SendResult:
        if reply.code == ResponseCode.TOPIC_NOT_EXIST:
            raise no_topic(outgoing.topic)  # another attempt would be in vain
        return question.read(reply)

    return Question(question.command, read)
