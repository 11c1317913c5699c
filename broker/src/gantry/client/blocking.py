"""The synchronous client: a producer and a puller on plain sockets, without asyncio.

For Spark executors, scripts and the command line, which have no event loop.  It sends the same requests as the asyncio
client (`questions`) and follows the same rules after a failure (`trial`).

    with BlockingProducer("orders", nameserver="127.0.0.1:9876") as producer:
        producer.send(Message("Orders", b"..."))

Calls of several threads are sent one after the other (`blockingsession`).  A puller reads from a slave when the master
suggests it, or while the master does not answer, as the asyncio client does (`replicas`).  Every few seconds the next
request tries the master again.  With `ReadFrom` it asks masters only, or slaves first.

After a fork parent and child may use the same objects: the child opens its own connections, and a producer has another
client id and other message ids there.  A call after `close()` raises ClosedError.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Self, TypeVar

from gantry.client.connections.blockingsession import TIMEOUT_S, BlockingSession, master_of
from gantry.client.filters import Filter, Sql, subscription_to
from gantry.client.hooks import Sending, around_send
from gantry.client.identity import ClientIdentity
from gantry.client.outgoing import Copy, Outgoing, prepare, prepare_batch, sharding
from gantry.client.producing.selector import Turn, by_key
from gantry.client.producing.trial import Trial
from gantry.client.requests import questions, topicstats
from gantry.client.requests.question import Question
from gantry.client.requests.questions import PullSettings
from gantry.client.requests.topicstats import TopicStats
from gantry.client.results import PullResult, PullStatus, ReadFrom, SendResult
from gantry.client.settings import ProducerSettings, check_group, nameserver_list
from gantry.clock import Clock, SystemClock
from gantry.errors import GantryError, OutcomeUnknownError, RefusedError, RemoteProtocolError, UnreachableError
from gantry.model.message import Message
from gantry.model.route import MASTER_ID, MessageQueue, TopicRoute
from gantry.transport import forked
from gantry.wire.codes import ResponseCode
from gantry.wire.heartbeat import Heartbeat

__all__ = [
    "BlockingProducer", "BlockingPuller", "Copy", "Message", "MessageQueue", "PullResult", "PullStatus", "ReadFrom",
    "SendResult", "Sql", "TopicStats",
]  # fmt: skip

T = TypeVar("T")

_PULL_MARGIN_S = 5.0
_SLAVE_WAIT_S = 2.0  # a slave that replaces the master holds a pull only so long: the master may be back
_LOOK_S = 3.0
_TOPICS_MAX = 2000


class BlockingProducer:
    """Sends and waits for the acknowledgement; results and errors are those of `producer.Producer`."""

    def __init__(
        self,
        group: str,
        *,
        nameserver: str | Sequence[str],
        settings: ProducerSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        check_group(group)
        self.group = group
        self._settings = settings or ProducerSettings()
        self._clock = clock or SystemClock()
        self._identity = ClientIdentity(nameserver_list(nameserver)[0], self._clock)
        self._turn = Turn(self._identity.random.randrange(1 << 16))
        self._session = BlockingSession(nameserver, self._heartbeat)
        self._to_write: dict[str, tuple[TopicRoute, list[MessageQueue]]] = {}
        forked.enrol(self)

    def forked(self) -> None:
        """Take new ids in a forked child, so that no two messages have the same id."""
        self._identity.renew()

    def close(self) -> None:
        """Unregister at the brokers and close the connections."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def next_message_id(self) -> str:
        """Return a new message id, for a message that is written down before it is sent (`Copy`)."""
        return self._identity.message_ids.next()

    def send(
        self,
        message: Message,
        *,
        key: str = "",
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
        copy: Copy | None = None,
    ) -> SendResult:
        """Send one message. Return where it was stored. `copy` gives it an id that it has already."""
        sending = Sending(self.group, [message])
        with around_send(self._settings.hooks, sending):
            (message,) = sending.messages
            compression = self._settings.compress_over_bytes, self._settings.compression
            ids, now_ms = self._identity.message_ids, self._clock.now_ms()
            outgoing = prepare(message, ids, now_ms, *compression, sharding(key), copy)
            sending.result = self._send(outgoing, key, queue, timeout_s)
            return sending.result

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        key: str = "",
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send messages of one topic, which are stored all or none. Return where they were stored."""
        sending = Sending(self.group, list(messages))
        with around_send(self._settings.hooks, sending):
            ids, now_ms = self._identity.message_ids, self._clock.now_ms()
            outgoing = prepare_batch(sending.messages, ids, now_ms, sharding(key))
            sending.result = self._send(outgoing, key, queue, timeout_s)
            return sending.result

    def _send(self, outgoing: Outgoing, key: str, queue: MessageQueue | None, timeout_s: float | None) -> SendResult:
        deadline = time.monotonic() + (self._settings.timeout_s if timeout_s is None else timeout_s)
        trial = Trial()
        while True:
            try:
                return self._attempt(outgoing, key, queue, trial, deadline)
            except (RefusedError, UnreachableError, OutcomeUnknownError) as error:
                trial.failed(error)
                self._session.doubt(outgoing.topic)
                pause_s = trial.pause_s() * self._identity.random.uniform(0.5, 1.0)
                if not trial.may_go_on or time.monotonic() + pause_s >= deadline:
                    verdict = trial.verdict(error)
                    if verdict is error:
                        raise
                    raise verdict from error
            time.sleep(pause_s)

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(self._identity.client_id, (self.group,))

    def _attempt(
        self, outgoing: Outgoing, key: str, queue: MessageQueue | None, trial: Trial, deadline: float
    ) -> SendResult:
        route = self._session.route(outgoing.topic, new_topics=True, within_s=deadline - time.monotonic())
        queues = self._queues_of(route, outgoing.topic)
        if not queues:
            remark = f"topic {outgoing.topic} has no queue that may be written to now"
            raise RefusedError(ResponseCode.NO_PERMISSION, remark)
        trial.groups = len({one.broker_name for one in queues})
        if queue is None:
            queue = by_key(queues, key) if key else self._turn.select(queues, trial.failed_groups)
        trial.current = queue.broker_name
        timeout_s = min(self._settings.attempt_timeout_s, deadline - time.monotonic())
        return self._session.ask(master_of(route, queue), questions.send(self.group, outgoing, queue), timeout_s)


    def _queues_of(self, route: TopicRoute, topic: str) -> list[MessageQueue]:
        """Return the queues of a route to write to; those of a topic's last route are kept."""
        known = self._to_write.get(topic)
        if known is None or known[0] is not route:
            if len(self._to_write) >= _TOPICS_MAX:
                self._to_write.clear()
            known = self._to_write[topic] = route, route.queues_to_write(topic)
        return known[1]


class BlockingPuller:
    """Pulls messages synchronously; results and errors are those of `puller.Puller`."""

    def __init__(self, group: str, *, nameserver: str | Sequence[str], read_from: ReadFrom = ReadFrom.AUTO) -> None:
        check_group(group)
        self.group = group
        self._read_from = read_from
        self._session = BlockingSession(nameserver, None)
        self._suggested: dict[MessageQueue, int] = {}  # id of the suggested slave
        self._away: dict[str, float] = {}  # groups whose master did not answer, and when to try it again

    def close(self) -> None:
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic in order; RefusedError 17 when no broker has the topic."""
        return self._session.route(topic).queues_to_read(topic)

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        tags: Filter = "*",
        count_max: int = 32,
        bytes_max: int = 1 << 20,
        wait_s: float = 0.0,
        is_raw: bool = False,
    ) -> PullResult:
        """Return messages from `offset` on that match the tags or the `Sql`; waits up to `wait_s` when there are none.

        is_raw: return them as `PullResult.records`, for callers that decode many at once.
        """
        settings = PullSettings(self.group, subscription_to(queue.topic, tags), count_max, bytes_max, wait_s, is_raw)

        def make(broker_id: int) -> Question[PullResult]:
            is_master = broker_id == MASTER_ID
            wait = wait_s if is_master else min(wait_s, _SLAVE_WAIT_S)
            return questions.pull(queue, offset, replace(settings, wait_s=wait))

        result, _ = self._asked(queue, make, wait_s + _PULL_MARGIN_S)
        self._suggested[queue] = result.suggested
        return result

    def stats(self, topic: str, broker_name: str) -> tuple[TopicStats, bool]:
        """Return the offsets of a topic's queues on one broker group, and whether the master answered."""
        question = topicstats.topic_stats(topic)
        found, broker_id = self._asked(MessageQueue(topic, broker_name, 0), lambda _: question, TIMEOUT_S)
        return found, broker_id == MASTER_ID

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the offset that the group committed; None when it never did."""
        return self._ask(queue, questions.committed(self.group, queue))

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """Set the group's committed offset."""
        question = questions.commit(self.group, queue, offset)
        try:
            self._ask(queue, question)
        except RefusedError as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            # A broker creates a group at its first pull, where that is allowed.
            self.pull(queue, offset, count_max=1)
            self._ask(queue, question)

    def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest stored message."""
        return max(0, self._ask(queue, questions.min_offset(queue)))

    def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the next message to be stored."""
        return self._ask(queue, questions.max_offset(queue))

    def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after a time (ms since the epoch)."""
        return self._ask(queue, questions.offset_at(queue, timestamp_ms))

    def _ask(self, queue: MessageQueue, question: Question[T]) -> T:
        return self._asked(queue, lambda _: question, TIMEOUT_S)[0]

    def _asked(self, queue: MessageQueue, make: Callable[[int], Question[T]], timeout_s: float) -> tuple[T, int]:
        """Return the first answer and the id of the member that gave it; the first error when no member answers."""
        failure: GantryError | None = None
        for broker_id, address in self._members(queue):
            try:
                answer = self._session.ask(address, make(broker_id), timeout_s)
            except (RefusedError, RemoteProtocolError) as error:
                if broker_id == MASTER_ID:
                    self._session.doubt(queue.topic)
                    raise
                failure = failure or error
            except (UnreachableError, OutcomeUnknownError) as error:
                failure = failure or error
                if broker_id == MASTER_ID:
                    self._away[queue.broker_name] = time.monotonic() + _LOOK_S
            else:
                if broker_id == MASTER_ID:
                    self._away.pop(queue.broker_name, None)
                return answer, broker_id
            self._suggested.pop(queue, None)
            self._session.doubt(queue.topic)
        if failure is not None:
            raise failure
        raise UnreachableError(f"{queue.broker_name}: no broker known for topic {queue.topic}")

    def _members(self, queue: MessageQueue) -> list[tuple[int, str]]:
        """Return the members to ask, in order: the suggested one, the master, its slaves; an absent master last."""
        broker = self._session.route(queue.topic).broker(queue.broker_name)
        members = {} if broker is None else broker.addresses
        if MASTER_ID not in members:
            self._session.doubt(queue.topic)
        is_away = self._away.get(queue.broker_name, 0.0) > time.monotonic()
        wanted = self._suggested.get(queue, MASTER_ID)

        if self._read_from is ReadFrom.MASTER:
            return [one for one in members.items() if one[0] == MASTER_ID]

        def rank(one: tuple[int, str]) -> tuple[bool, bool, int]:
            if self._read_from is ReadFrom.SLAVE:
                return one[0] == MASTER_ID, False, one[0]
            return is_away and one[0] == MASTER_ID, one[0] != wanted, one[0]

        return sorted(members.items(), key=rank)
