"""Sends that leave together: what one turn of the loop brings for one queue is one batch request.

A request costs the client more than a message does, so many sends at a time cost a fraction of single ones.  Callers
see no difference: each message has its own id, result, offset and error, and messages of one queue leave in the order
of the calls.

    refused for good        each message is sent again by itself, so that one bad message does not affect the others;
                            for a minute the messages of this topic leave singly
    refused for now         every message has this refusal; it is tried again by itself (`Sender`)
    no answer               the outcome of every message is unknown
    cancelled before        the message is not sent
    cancelled afterwards    the others are not affected

Only first attempts of plain messages are gathered, and only for a broker whose answers show that it is GantryMQ: it
stores the messages of a batch exactly like single ones.  RocketMQ may store a batch as one record (BatchCQ topics).
Delayed, compressed, large and one-way messages, and retries, leave by themselves, behind what was gathered before.

The time of birth is one for a batch, that of its first message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from gantry.client.connections.session import Session
from gantry.client.outgoing import Outgoing
from gantry.client.requests import questions
from gantry.client.requests.question import Question
from gantry.client.results import SendResult
from gantry.errors import GantryError, OutcomeUnknownError, RefusedError, UnreachableError
from gantry.leaves.frames import Command
from gantry.model.route import MessageQueue
from gantry.transport.connection import Connection
from gantry.wire.record import join_batch

_BATCH_BYTES_MAX = 128 << 10
_MESSAGE_BYTES = 64  # what each takes beside its body and properties, so that their number is bounded too
_GATHERED_BYTES_MAX = 256 << 10  # of all queues; then they leave before the turn ends
_TIME_OUTS_S = 0.01  # by so much the time-outs of messages in one batch may differ
_SINGLY_S = 60.0
_SINGLY_TOPICS_MAX = 1000

_Post = tuple[asyncio.Future[SendResult], Outgoing]


@dataclass(slots=True)
class _Batch:
    """Messages for one queue; their answer counts until the last one's time is up, which is one turn of the loop late
    for the first.
    """

    connection: Connection
    queue: MessageQueue
    timeout_s: float
    until: float
    bytes: int = 0
    posts: list[_Post] = field(default_factory=list)
    refusal: RefusedError | None = None  # of the batch in which this message was before


class Gathering:
    """Gathers the sends of one producer; belongs to the loop that uses it first."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._loop: asyncio.AbstractEventLoop  # known with the first message
        self._batches: list[_Batch] = []  # in the order in which they leave
        self._open: dict[MessageQueue, _Batch] = {}  # the last one of each queue
        self._bytes = 0
        self._singly: dict[str, float] = {}  # topics whose messages leave singly, until this loop time

    def post(
        self, outgoing: Outgoing, queue: MessageQueue, address: str, now: float, timeout_s: float
    ) -> asyncio.Future[SendResult] | None:
        """Send a message to a queue's master at the end of this turn; None when it has to leave by itself.

        The future gets the result, or fails like a single send. now: the loop's time, from which the time-out counts.
        """
        batch = self._open.get(queue)
        if batch is None or batch.bytes >= _BATCH_BYTES_MAX or abs(timeout_s - batch.timeout_s) >= _TIME_OUTS_S:
            batch = self._begin(queue, address, now, timeout_s)
            if batch is None:
                return None
        batch.until = max(batch.until, now + timeout_s)
        future: asyncio.Future[SendResult] = self._loop.create_future()
        batch.posts.append((future, outgoing))
        size = len(outgoing.body) + len(outgoing.properties) + _MESSAGE_BYTES
        batch.bytes += size
        self._bytes += size
        if self._bytes >= _GATHERED_BYTES_MAX:
            self.flush()
        return future

    def _begin(self, queue: MessageQueue, address: str, now: float, timeout_s: float) -> _Batch | None:
        if self._singly and self._singly.get(queue.topic, now) > now:
            return None
        connection = self._session.batching(address)
        if connection is None:
            return None
        if not self._batches:
            self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self.flush)
        batch = self._open[queue] = _Batch(connection, queue, timeout_s, now + timeout_s)
        self._batches.append(batch)
        return batch

    def flush(self) -> None:
        """Send what was gathered, in one write for each connection."""
        if self._batches:
            batches, self._batches, self._bytes = self._batches, [], 0
            self._open.clear()
            self._depart(batches)

    def _depart(self, batches: Sequence[_Batch]) -> None:
        with ExitStack() as afterwards:
            afterwards.callback(_give_up, batches)
            for batch in batches:
                if batch.connection.cork():
                    afterwards.callback(batch.connection.uncork)
                self._leave(batch)

    def _leave(self, batch: _Batch) -> None:
        """Send the messages in one request, without those that were cancelled."""
        sent = [post for post in batch.posts if not post[0].done()]
        batch.posts = []
        left_s = batch.until - self._loop.time()
        if not sent:
            return
        if left_s <= 0:
            late = UnreachableError(f"{batch.queue.topic}: the time was over before the message was sent")
            _fail(sent, batch.refusal or late)
            return
        try:
            outgoing = sent[0][1] if len(sent) == 1 else _joined([outgoing for _, outgoing in sent])
            question = questions.send(self._group, outgoing, batch.queue)
            answer = batch.connection.invoke(question.command, left_s)
            answer.add_done_callback(partial(self._answered, batch, sent, question))
        except BaseException:
            _fail(sent, OutcomeUnknownError(f"{batch.queue.topic}: the send was interrupted"))
            raise

    def _answered(
        self, batch: _Batch, sent: list[_Post], question: Question[SendResult], answer: asyncio.Future[Command]
    ) -> None:
        try:
            result = question.read(answer.result())
        except RefusedError as error:
            if len(sent) == 1 or error.retriable:
                _fail(sent, error)
            else:
                self._leave_singly(batch, sent, error)
        except OutcomeUnknownError as error:
            self._session.unanswered(batch.connection)
            _fail(sent, error)
        except (GantryError, asyncio.CancelledError) as error:
            _fail(sent, error if isinstance(error, GantryError) else OutcomeUnknownError("the request was cancelled"))
        else:
            _succeed(sent, result)

    def _leave_singly(self, batch: _Batch, refused: list[_Post], error: RefusedError) -> None:
        if len(self._singly) >= _SINGLY_TOPICS_MAX:
            self._singly.clear()
        self._singly[batch.queue.topic] = self._loop.time() + _SINGLY_S
        self.flush()
        every = batch.connection, batch.queue, batch.timeout_s, batch.until
        self._depart([_Batch(*every, posts=[post], refusal=error) for post in refused])


def _joined(several: list[Outgoing]) -> Outgoing:
    first = several[0]
    body = join_batch([(one.flag, one.body, one.properties) for one in several])
    # Properties of the request would be added to every message.
    ids = tuple([one.message_ids[0] for one in several])
    may_make_topic = first.may_make_topic
    return Outgoing(first.topic, body, b"", ids, first.born_ms, is_batch=True, may_make_topic=may_make_topic)


def _succeed(sent: Sequence[_Post], result: SendResult) -> None:
    places, queue, offset = result.offset_message_ids, result.queue, result.queue_offset
    if len(sent) == 1:
        if not sent[0][0].done():
            sent[0][0].set_result(result)
        return
    if len(places) != len(sent):
        # It says success, but not of which messages.
        _fail(sent, OutcomeUnknownError(f"{queue.topic}: the reply to a batch of {len(sent)} names {len(places)}"))
        return
    for place, (future, outgoing) in zip(places, sent, strict=True):
        if not future.done():
            future.set_result(SendResult(outgoing.message_ids, (place,), queue, offset))
        offset += 1


def _give_up(batches: Sequence[_Batch]) -> None:
    """Fail the messages that an exception has left behind; there are none without one."""
    for batch in batches:
        _fail(batch.posts, UnreachableError(f"{batch.queue.topic}: not sent, an error came before"))


def _fail(posts: Sequence[_Post], error: GantryError) -> None:
    """Give each message that waits an error of its own: what is raised twice would have the traces of both."""
    for future, _ in posts:
        if not future.done():
            own = RefusedError(error.code, error.remark) if isinstance(error, RefusedError) else type(error)(str(error))
            future.set_exception(own)
