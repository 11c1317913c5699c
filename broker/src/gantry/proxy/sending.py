"""SendMessage and RecallMessage: messages of clients on their way to a broker.

Each message is checked; then those that a broker may store in one batch (same message group, no delay, no transaction)
are sent as one request, the others one by one, all at the same time.  Every message has a result of its own.

    stored                              OK, with its offset
    stored, but not flushed or          the broker's 10, 11 and 12: the client sends again; a copy has the same id
    replicated in time
    refused or not reached              the code of `faults`

The queue is chosen here: by the message group, else in turn over all brokers of the topic.  A failed attempt is
repeated on another broker within the time of the call, but never for a transaction whose half may be stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gantry.client.outgoing import Outgoing
from gantry.client.producing.sending import Sender
from gantry.client.requests import questions, transaction_requests
from gantry.client.requests import recall as recall_requests
from gantry.client.requests.question import Question, number, require
from gantry.client.requests.questions import is_in_doubt
from gantry.client.settings import ProducerSettings
from gantry.errors import GantryError, OutcomeUnknownError
from gantry.gateway.brokers import Brokers
from gantry.leaves.frames import Command
from gantry.model.route import MessageQueue
from gantry.proxy import convert, faults, routes, validation
from gantry.proxy import messaging_pb2 as pb
from gantry.proxy.caller import Caller
from gantry.proxy.faults import FaultError
from gantry.proxy.handles import Handles
from gantry.wire.codes import ResponseCode

IN_FLIGHT_MAX = 2048  # sends under way in this process; others wait
_STORED = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
)
_RECALL_S = 3.0
_GROUP = "gantry_proxy"  # producer group of plain sends; the topic's own is for transactions (`convert`)


@dataclass(frozen=True, slots=True)
class _Stored:
    """A broker's answer to a send: a code of `_STORED`, and where it begins."""

    code: int
    offset: int
    recall_handle: str


class SendCalls:
    """Sends for all producers."""

    def __init__(self, brokers: Brokers, handles: Handles, now_ms: Callable[[], int]) -> None:
        self._brokers = brokers
        self._handles = handles
        self._now_ms = now_ms
        settings = ProducerSettings(in_flight_max=IN_FLIGHT_MAX, batches=False)
        self._sender = Sender(brokers.session, brokers.routes, settings, brokers.random)

    async def send(self, request: pb.SendMessageRequest, caller: Caller, within_s: float) -> pb.SendMessageResponse:
        """Send the messages of one request; FaultError when it is invalid, and then nothing was sent."""
        topic = routes.topic_name(validation.one_topic(request.messages))
        now_ms = self._now_ms()
        kinds = [validation.checked(message, now_ms) for message in request.messages]
        accepted = routes.accepted(await self._brokers.attributes(topic))
        for kind in kinds:
            validation.check_type(kind, accepted)
        ready = [
            convert.outgoing(message, kind, caller.peer, now_ms)
            for message, kind in zip(request.messages, kinds, strict=True)
        ]
        groups = {message.system_properties.message_group for message in request.messages}
        is_batch = len(ready) > 1 and len(groups) == 1 and set(kinds) <= {pb.NORMAL, pb.FIFO} and _fits(ready)
        if is_batch and not any(one.sys_flag for one in ready):
            entries = await self._send_batch(ready, groups.pop(), within_s)
        else:
            entries = list(
                await asyncio.gather(
                    *(
                        self._send_one(one, kind, message.system_properties.message_group, within_s)
                        for one, kind, message in zip(ready, kinds, request.messages, strict=True)
                    )
                )
            )
        return pb.SendMessageResponse(status=faults.common([entry.status for entry in entries]), entries=entries)

    async def recall(self, request: pb.RecallMessageRequest) -> str:
        """Cancel a delayed message. Return its id; FaultError when the handle is invalid, or it is too late."""
        topic = routes.topic_name(request.topic)
        try:
            queue = recall_requests.queue_of(request.recall_handle)
        except ValueError as error:
            raise FaultError(pb.BAD_REQUEST, str(error)) from error
        if queue.topic != topic:
            raise FaultError(pb.BAD_REQUEST, f"the recall handle is of topic {queue.topic[:127]}, not of {topic}")
        validation.check_type(pb.DELAY, routes.accepted(await self._brokers.attributes(topic)))
        address = await self._brokers.master_of(queue.broker_name)
        question = recall_requests.recall(topic, request.recall_handle, queue)
        return await self._brokers.session.ask(address, question, _RECALL_S)

    async def _send_batch(self, ready: Sequence[Outgoing], key: str, within_s: float) -> list[pb.SendResultEntry]:
        first, *others = await self._entries(convert.batch(list(ready)), key, within_s, len(ready))
        return [first, *others]

    async def _send_one(
        self, ready: Outgoing, kind: pb.MessageType, key: str, within_s: float
    ) -> pb.SendResultEntry:
        if kind == pb.TRANSACTION:
            return await self._half(ready, key, within_s)
        (entry,) = await self._entries(ready, key, within_s, 1)
        return entry

    async def _entries(self, ready: Outgoing, key: str, within_s: float, count: int) -> list[pb.SendResultEntry]:
        try:
            stored = await self._sender.send(ready, self._sender.chooser(key, None), _ask, within_s)
        except GantryError as error:
            return [_failed(error, message_id) for message_id in ready.message_ids]
        status = _status(stored.code)
        return [
            pb.SendResultEntry(
                status=status,
                message_id=ready.message_ids[index],
                offset=stored.offset + index,
                recall_handle=stored.recall_handle,
            )
            for index in range(count)
        ]

    async def _half(self, ready: Outgoing, key: str, within_s: float) -> pb.SendResultEntry:
        choose = self._sender.chooser(key, None)
        try:
            prepared = await self._sender.send(ready, choose, _ask_half, within_s, again_when_unknown=False)
        except GantryError as error:
            return _failed(error, ready.message_ids[0])
        return pb.SendResultEntry(
            status=_status(prepared.code),
            message_id=ready.message_ids[0],
            offset=prepared.half.half_offset,
            transaction_id=self._handles.transaction(prepared.half),
        )


def _ask(outgoing: Outgoing, queue: MessageQueue) -> Question[_Stored]:
    def read(reply: Command) -> _Stored:
        if reply.code not in _STORED and is_in_doubt(reply):
            raise OutcomeUnknownError(f"{queue.broker_name}: {reply.code} {reply.remark}")
        require(reply, *_STORED)
        if reply.code != ResponseCode.SUCCESS and "queueOffset" not in reply.ext:
            raise OutcomeUnknownError(f"{queue.broker_name}: {ResponseCode(reply.code).name}, without its offset")
        return _Stored(reply.code, number(reply, "queueOffset"), reply.ext.get("recallHandle", ""))

    return Question(questions.send(_GROUP, outgoing, queue).command, read)


def _ask_half(outgoing: Outgoing, queue: MessageQueue) -> Question[transaction_requests.Prepared]:
    return transaction_requests.prepare(outgoing.topic, outgoing, queue)


def _fits(ready: Sequence[Outgoing]) -> bool:
    return sum(len(one.body) + len(one.properties) for one in ready) < validation.BODY_BYTES_MAX - (64 << 10)


def _status(code: int) -> pb.Status:
    if code == ResponseCode.SUCCESS:
        return faults.ok()
    return pb.Status(code=faults.code_of(code), message=f"stored, but not safe yet: {ResponseCode(code).name}")


def _failed(error: GantryError, message_id: str) -> pb.SendResultEntry:
    return pb.SendResultEntry(status=faults.of_error(error).status(), message_id=message_id)
