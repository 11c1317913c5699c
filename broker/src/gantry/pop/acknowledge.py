"""Requests about popped messages: done (ACK_MESSAGE 200051, BATCH_ACK_MESSAGE 200151), another time
(CHANGE_MESSAGE_INVISIBLETIME 200053), given up (FORWARD_TO_DLQ 24043, ours).

A handle that is not valid any more is no error for RocketMQ's clients: an acknowledgement is answered SUCCESS.  The
field `gantryVerdict` of the answer (`book.Verdict`) says what the handle meant; other clients ignore it.  A change and
a dead letter need a valid handle: NO_MESSAGE (208) else.
An acknowledgement of a message of an HTTP queue whose life is over is answered 208 too.

Acknowledgements of one turn are gathered: one record for each lease, one append.  A message is closed in the book when
that record is in the log, and the answer waits until it is confirmed.  An answer to a repeated acknowledgement waits
until the first one is confirmed too.

A change writes a new lease of one message and the acknowledgement of the old one in one append, in that order; a dead
letter is its copy and the acknowledgement.  When a crash keeps only the first half, a start finds the newer lease,
which counts; a dead letter may then be there twice, and was not answered.

Handles of orderly pops are given to `orderly_acks`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from gantry.append.redelivery import MoveToDeadLetters, again_of, popped_from
from gantry.errors import Refusal
from gantry.leaves import frames, leases
from gantry.leaves.frames import Command
from gantry.pop import ack_bodies, handle, records
from gantry.pop.book import OpenLease, Verdict
from gantry.pop.counts import ACK, LEASE
from gantry.pop.handle import ReceiptHandle
from gantry.pop.lives import normal_topic
from gantry.pop.orderly_acks import VERDICT, OrderlyAcks
from gantry.pop.records import LeaseKey, LeaseRecord
from gantry.pop.revive import Reviver
from gantry.pop.service import PopService
from gantry.store.coldplaces import begins_at
from gantry.store.keysearch import resolved
from gantry.store.timesearch import store_time
from gantry.wire import bodies, headers
from gantry.wire.codes import ResponseCode
from gantry.wire.command import refusal, reply
from gantry.wire.headers import Header

if TYPE_CHECKING:
    from gantry.leaves.frames import Send
    from gantry.transport.connection import Connection

_Answer = Command | None | Awaitable[Command | None]
_ACKS_MAX = 1024  # leases in one request
# RocketMQ: Java's client logs three errors with stacks for an answer without these, whatever its code.
_NO_LEASE = headers.to_ext(popTime=0, invisibleTime=0, reviveQid=0)
_NOT_VALID = "the handle is not valid any more: the message was acknowledged, or delivered again with another handle"


class Named(NamedTuple):
    """A message that a request names: its lease, its offset, and what its handle said."""

    key: LeaseKey
    offset: int
    handle: ReceiptHandle


@dataclass(slots=True)
class _Closing:
    """Messages of one lease that were acknowledged in this turn, as its bits."""

    lease: OpenLease
    bits: int = 0


class AckHandlers:
    """Handlers of requests with receipt handles."""

    def __init__(self, service: PopService, reviver: Reviver, soon: Callable[[Callable[[], None]], object]) -> None:
        """soon: calls a function at the end of this turn."""
        self.orderly: OrderlyAcks | None = None
        self._service = service
        self._context = service.context
        self._reviver = reviver
        self._soon = soon
        self._closing: dict[LeaseKey, _Closing] = {}
        self._answers: list[tuple[Connection, Command, Command | None]] = []
        service.append_with_acks = self.finish_with

    def ack(self, connection: Connection, command: Command) -> Command | None:
        """ACK_MESSAGE: one message is done."""
        header = headers.parse(command.code, command.ext)
        named = self._named(header, is_end_illegal=False)
        if isinstance(named, Refusal):
            return refusal(command, named)
        if self.orderly is not None and named.handle.revive_queue == handle.ORDERLY_QUEUE:
            answer = self.orderly.ack(command, named.key[:3], named.offset, named.key.pop_ms)
            return self._park_done(connection, command, answer)
        if self._is_over(named):
            return self._over(command)
        verdict = self._close_soon(named.key, (named.offset,), named.handle.pop_ms + named.handle.invisible_ms)
        self._answer_soon(connection, command, reply(command, ext={VERDICT: verdict[0].value}))
        return None

    def batch_ack(self, connection: Connection, command: Command) -> Command | None:
        """BATCH_ACK_MESSAGE: messages of several leases are done.

        The body of the answer is empty when all handles were valid, else it has `{"stale": [[entry, offset], ...]}`.
        """
        plain = leases.acks(command.body)
        if plain is not None and len(plain) <= _ACKS_MAX and self._closes_all_soon(plain):
            self._answer_soon(connection, command, None)
            return None
        acks = bodies.asked(command.body).get("acks")
        if not isinstance(acks, list) or not acks:
            return reply(command, ResponseCode.NO_MESSAGE, "the request acknowledges nothing: acks is empty")
        if len(acks) > _ACKS_MAX:
            remark = f"{len(acks)} leases in one request, {_ACKS_MAX} are allowed; send several requests"
            return reply(command, ResponseCode.INVALID_PARAMETER, remark)
        wanted = [ack_bodies.entry(one) for one in acks]  # nothing is done when one of them cannot be read
        stale: list[list[int]] = []
        for number, (key, offsets, end_ms) in enumerate(wanted):
            if self.orderly is not None and end_ms == ack_bodies.IN_ORDER:
                closed = self.orderly.close(key[:3], offsets, key.pop_ms)
                if isinstance(closed, Refusal):  # answered with the leases before it, which are closed all the same
                    self._answer_soon(connection, command, refusal(command, closed))
                    return None
                verdicts = closed
            else:
                verdicts = self._close_soon(key, offsets, end_ms)
            found = zip(offsets, verdicts, strict=True)
            stale += [[number, offset] for offset, verdict in found if verdict is not Verdict.OPEN]
        self._answer_soon(connection, command, reply(command, body=bodies.dumps({"stale": stale})) if stale else None)
        return None

    def _closes_all_soon(self, acks: Sequence[leases.Ack]) -> bool:
        """Close all messages of a batch at the end of this turn; False, and nothing is done, if it needs a closer look:
        one of them is not open, is named twice in this turn, comes from an HTTP queue or was popped in order.
        """
        closing: dict[LeaseKey, _Closing] = {}
        for group, topic, flag, queue_id, start, pop_ms, _, revive_queue, bits in acks:
            if flag:
                topic = handle.retry_topic(topic, group, flag)
            key = LeaseKey(group, topic, queue_id, start, pop_ms)
            lease = self._service.book.find(key)
            if lease is None or not bits or bits & ~lease.open or not lease.is_without_gaps:
                return False
            if key in self._closing or key in closing or revive_queue == handle.ORDERLY_QUEUE:
                return False
            if self._service.lives.from_ms(normal_topic(lease)) is not None:
                return False
            closing[key] = _Closing(lease, bits)
        self._closing.update(closing)
        return True

    def change(self, connection: Connection, command: Command) -> Command | None:
        """CHANGE_MESSAGE_INVISIBLETIME: the message becomes visible at another time; answers its new handle's words.

        Zeros stand for them in an answer with another code than SUCCESS.
        """
        answer = self._change(connection, command)
        if answer is not None and answer.code:
            answer.ext = {**_NO_LEASE, **(answer.ext or {})}
        return answer

    def _change(self, connection: Connection, command: Command) -> Command | None:
        header = headers.parse(command.code, command.ext)
        invisible_ms, longest_ms = header.integer("invisibleTime"), self._service.rules.invisible_ms_max
        named = self._named(header, is_end_illegal=True)
        if isinstance(named, Refusal):
            return refusal(command, named)
        if not 0 <= invisible_ms <= longest_ms:
            remark = f"invisibleTime[{invisible_ms}] is illegal, it has to be from 0 to {longest_ms} ms"
            return reply(command, ResponseCode.INVALID_PARAMETER, remark)
        if self.orderly is not None and named.handle.revive_queue == handle.ORDERLY_QUEUE:
            answer = self.orderly.change(command, named.key[:3], named.offset, named.key.pop_ms, invisible_ms)
            return self._park_done(connection, command, answer)
        if self._is_over(named):
            return self._over(command)
        lease = self._open(named)
        if lease is None:
            return self._stale(command, named)
        now_ms = self._context.clock.now_ms()
        pop_ms = self._service.book.pop_ms(named.key[:3], named.offset, now_ms)
        key = LeaseKey(*named.key[:3], named.offset, max(pop_ms, lease.key.pop_ms + 1))
        # Without an owner: a failed message has to come again at this time, and not be renewed while its client lives.
        record = LeaseRecord(key, now_ms + invisible_ms, (named.offset,), "", lease.generation, is_again=True)
        place = self._service.place(lease.revive_queue)
        moved = self._service.moved(lease, (named.offset,))
        end = self._service.append([records.lease_message(record, place), moved], is_scanned=True)
        if isinstance(end, Refusal):
            return refusal(command, end)
        self._service.book.moved(lease.key, (named.offset,), lease.end_ms, now_ms)
        self._service.book.close(lease, (named.offset,))
        self._service.counts.store(key, LEASE)
        self._service.counts.store(lease.key, ACK)
        begins = begins_at(self._context.store, key.topic, key.queue_id, named.offset)
        self._service.enter(record, lease.revive_queue, begins or 0)
        self._service.counts.changed += 1
        ext = headers.to_ext(popTime=key.pop_ms, invisibleTime=invisible_ms, reviveQid=lease.revive_queue)
        self._park(connection, command, reply(command, ext={**ext, VERDICT: Verdict.OPEN.value}))
        return None

    def forward_to_dlq(self, connection: Connection, command: Command) -> _Answer:
        """FORWARD_TO_DLQ: the message goes to the group's dead-letter topic and is done.

        A handle that is not valid any more is answered SUCCESS, so that a repeated request does nothing.
        """
        named = self._named(headers.parse(command.code, command.ext), is_end_illegal=True)
        if isinstance(named, Refusal):
            return refusal(command, named)
        key, store = named.key, self._context.store
        in_memory = store_time(store, key.topic, key.queue_id, named.offset)
        return resolved(in_memory, lambda stored_ms: self._forward(connection, command, named))

    def _forward(self, connection: Connection, command: Command, named: Named) -> Command | None:
        if self.orderly is not None and named.handle.revive_queue == handle.ORDERLY_QUEUE:
            answer = self.orderly.forward(command, named.key[:3], named.offset, named.key.pop_ms)
            return self._park_done(connection, command, answer)
        lease = self._open(named)
        if lease is None:
            self._service.counts.stale += 1
            answer = reply(command, ext={VERDICT: self._verdict(named).value})
            self._park(connection, command, answer)
            return None
        reader, key = self._context.store.reader, named.key
        entry = reader.entry(key.topic, key.queue_id, named.offset)
        record = None if entry is None else reader.record(entry)
        if record is None:
            return reply(command, ResponseCode.NO_MESSAGE, "the message is not in the log any more")
        fate = MoveToDeadLetters()
        origin = popped_from(record, handle.normal_topic(key.topic, key.group)[0])
        target = self._reviver.target(key.group, "", fate)
        copy = again_of(record, origin, fate, target, key.pop_ms)
        end = self._service.append([copy, self._service.ack(lease, (named.offset,))])
        if isinstance(end, Refusal):
            return refusal(command, end)
        self._service.book.close(lease, (named.offset,))
        self._service.counts.dead += 1
        self._service.counts.store(lease.key, ACK)
        self._park(connection, command, reply(command, ext={VERDICT: Verdict.OPEN.value}))
        return None

    def _named(self, header: Header, *, is_end_illegal: bool) -> Named | Refusal:
        """Return the message that a request names; the checks are RocketMQ's, in its order."""
        topic, queue_id, offset = header.text("topic"), header.integer("queueId"), header.integer("offset")
        found = handle.decode(header.text("extraInfo"))
        group = header.text("consumerGroup")
        if found is not None and found.flag and not topic.startswith(handle.retry_topic("", group, found.flag)):
            topic = handle.real_topic(topic, group, found.flag)
        config = self._context.topics.get(topic)
        if config is None:
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic[:255]}] not exist, apply first please!")
        if not 0 <= queue_id < config.read_queues:
            remark = f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{config.read_queues}]"
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        low, high = self._context.store.queue_range(topic, queue_id) or (0, 0)
        if offset < low or offset > high or (is_end_illegal and offset == high):
            remark = f"offset is illegal, key:{topic}@{queue_id}, offset:{offset}, store:[{low},{high})"
            return Refusal(ResponseCode.NO_MESSAGE, remark)
        if found is None:
            remark = "extraInfo is no receipt handle; send the property POP_CK of the message as it came"
            return Refusal(ResponseCode.INVALID_PARAMETER, remark)
        broker = self._service.rules.broker
        if found.broker != broker or found.queue_id != queue_id or found.offset != offset:
            remark = (
                f"the handle is for offset {found.offset} of queue {found.queue_id} on {found.broker[:80]}, the "
                f"request for offset {offset} of queue {queue_id} on {broker}; send it to the broker of its message"
            )
            return Refusal(ResponseCode.INVALID_PARAMETER, remark)
        return Named(LeaseKey(group, topic, queue_id, found.start, found.pop_ms), offset, found)

    def _close_soon(self, key: LeaseKey, offsets: tuple[int, ...] | list[int], end_ms: int) -> list[Verdict]:
        """Close what is open at the end of this turn; return what each handle means."""
        lease = self._service.book.find(key)
        closing = self._closing.get(key)
        if lease is not None and closing is None and (bits := lease.mask(offsets) & lease.open):
            closing = self._closing[key] = _Closing(lease)
            if bits.bit_count() == len(offsets) and self._service.lives.from_ms(normal_topic(lease)) is None:
                # Each is open, lives, and is named once.
                closing.bits = bits
                return [Verdict.OPEN] * len(offsets)
        verdicts = []
        for offset in offsets:
            if lease is not None and closing is not None and (bit := lease.open & lease.mask((offset,))):
                if self._service.lives.is_over(lease, offset):
                    verdicts.append(Verdict.STALE)
                    continue
                verdicts.append(Verdict.DONE if bit & closing.bits else Verdict.OPEN)
                closing.bits |= bit
            else:
                now_ms = self._context.clock.now_ms()
                verdicts.append(self._service.book.verdict(key, offset, end_ms, now_ms))
        self._service.counts.stale += sum([verdict is not Verdict.OPEN for verdict in verdicts])
        return verdicts

    def _answer_soon(self, connection: Connection, command: Command, answer: Command | None) -> None:
        if not self._answers:
            self._soon(self.finish)
        self._answers.append((connection, command, answer))

    def finish(self) -> None:
        """Append the acknowledgements of this turn, and answer them."""
        self.finish_with(())

    def finish_with(self, more: Sequence[Send]) -> int | Refusal:
        """Append the acknowledgements of this turn, and these records behind them; answer the acknowledgements.

        Return the log's end, or why nothing of both was written.
        """
        if not self._closing and not self._answers:
            return self._service.append(more, is_scanned=True) if more else self._context.store.written.offset
        closing, self._closing = self._closing, {}
        answers, self._answers = self._answers, []
        book, sends, closed = self._service.book, [], []
        for key, one in closing.items():
            if book.find(key) is one.lease:  # it may have ended meanwhile
                offsets = one.lease.offsets_of(one.bits & one.lease.open)
                sends += [self._service.ack(one.lease, offsets)] if offsets else []
                closed.append((one.lease, offsets))
        end = (
            self._service.append([*sends, *more], is_scanned=True)
            if sends or more
            else self._context.store.written.offset
        )
        for connection, command, answer in answers:
            if isinstance(end, Refusal):
                answer = refusal(command, end)
                if not command.is_oneway:
                    connection.write(frames.encode(answer))
            else:
                self._park(connection, command, answer)
        if not isinstance(end, Refusal):
            for lease, offsets in closed:
                self._service.counts.acked += len(book.close(lease, offsets))
                if offsets:
                    self._service.counts.store(lease.key, ACK)
        return end

    def _park_done(self, connection: Connection, command: Command, answer: Command) -> Command | None:
        """Park the answer of something done; return another one, which is sent now."""
        if answer.code:
            return answer
        self._park(connection, command, answer)
        return None

    def _park(self, connection: Connection, command: Command, answer: Command | None) -> None:
        """Answer when everything that is written now is confirmed; without an answer of its own, just SUCCESS."""
        if not command.is_oneway:
            encoded = frames.encode_success(command.opaque) if answer is None else frames.encode(answer)
            end = self._context.store.written.offset
            if self._context.acks.waits(end):
                self._context.acks.park(end, connection, encoded, 1)
            else:
                connection.write(encoded)

    def _open(self, named: Named) -> OpenLease | None:
        """Return the lease if the message is open, after what this turn closed."""
        self.finish()
        lease = self._service.book.find(named.key)
        return lease if lease is not None and lease.open & lease.mask((named.offset,)) else None

    def _is_over(self, named: Named) -> bool:
        """Return whether the message is leased and its life is over."""
        lease = self._service.book.find(named.key)
        is_open = lease is not None and lease.open & lease.mask((named.offset,))
        return bool(is_open) and lease is not None and self._service.lives.is_over(lease, named.offset)

    def _over(self, command: Command) -> Command:
        self._service.counts.stale += 1
        remark = "the life of the message is over (gantry.queue.life_s)"
        return reply(command, ResponseCode.NO_MESSAGE, remark, {VERDICT: Verdict.STALE.value})

    def _verdict(self, named: Named) -> Verdict:
        end_ms = named.handle.pop_ms + named.handle.invisible_ms
        return self._service.book.verdict(named.key, named.offset, end_ms, self._context.clock.now_ms())

    def _stale(self, command: Command, named: Named) -> Command:
        self._service.counts.stale += 1
        return reply(command, ResponseCode.NO_MESSAGE, _NOT_VALID, {VERDICT: self._verdict(named).value})
