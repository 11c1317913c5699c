"""POP_MESSAGE (200050) and PEEK_MESSAGE (200052): checks, one attempt at messages, and the answer.

The order of the checks, their codes and remarks are RocketMQ's (`PopMessageProcessor`).  A pop that finds messages is
answered when its leases are confirmed.  One that finds none is given to `hold` when it may wait; `try_again` is one
more attempt, made when messages have come.  An orderly pop is one whose messages are taken by `in_order`.

Messages far behind the end of the log are brought in by the cold reader first; the pop tries again then.  When they do
not stay in memory, or that cannot be known (pure leaves), it reads them after `_READS_OF_ONE` such attempts all the
same: the loop waits for the disk once, and the pop is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING

from gantry.consume.pull import PullChecks, PullRefusal
from gantry.errors import Refusal
from gantry.leaves import frames
from gantry.leaves.frames import Command
from gantry.metadata.commits import no_room
from gantry.model import names
from gantry.pop import answers
from gantry.pop.service import PopService
from gantry.pop.taking import INIT_MAX, INIT_MIN, Catch, Cold, Taker, Wish
from gantry.wire import headers
from gantry.wire.codes import ResponseCode
from gantry.wire.command import reply
from gantry.wire.headers import Header

if TYPE_CHECKING:
    from gantry.transport.connection import Chunk, Connection

BY_PRIORITY = "priority"  # value of gantryOrder: ascending queues, redelivered messages of each first
COUNT_MAX = 32  # RocketMQ's largest maxMsgNums
_READS_MAX = 512  # the cold reader queues 1024 jobs, and others read by it too
_POP_NAME_MAX = 64
_READS_OF_ONE = 3  # of one pop, before it may wait for the disk
_NOT_SAVED = Refusal(ResponseCode.SYSTEM_BUSY, "where the group begins is not on the disk yet; look at the disk")
_NO_SERVING_LEASE = Refusal(ResponseCode.SYSTEM_BUSY, "this broker may not serve now; ask the group's master")


class PopRequest:
    """A pop that passed the checks, with the time until when it may wait (ms by the broker's steady clock)."""

    __slots__ = ("attempt_id", "command", "connection", "is_order", "reads", "until_ms", "wish")

    def __init__(
        self, connection: Connection, command: Command, wish: Wish, until_ms: int, is_order: bool, attempt_id: str
    ) -> None:
        self.connection = connection
        self.command = command
        self.wish = wish
        self.reads = 0  # how often its messages were brought in
        self.until_ms = until_ms
        self.is_order = is_order
        self.attempt_id = attempt_id


Hold = Callable[[PopRequest], bool]
"""Keeps a pop until messages come; False when too many wait."""
TakeInOrder = Callable[[Wish, str], Catch | Refusal]
"""Takes messages for an orderly pop with this attempt id."""


class PopHandlers:
    """Answers pops."""

    def __init__(self, service: PopService, checks: PullChecks, chance: Random) -> None:
        self.hold: Hold | None = None
        self.in_order: TakeInOrder | None = None
        self.taker = Taker(service, chance)
        self._service = service
        self._context = service.context
        self._checks = checks
        self._reads = 0
        self._is_reading_ahead = False

    def pop(self, connection: Connection, command: Command) -> Command | Awaitable[None] | None:
        """POP_MESSAGE; return the answer, or None when it is sent later."""
        request = self.checked(connection, command)
        if isinstance(request, Refusal):
            self._service.counts.refused += 1
            return self.empty(command, request.code, request.remark)
        if not connection.is_writable:
            return self.empty(command)  # the peer does not read; nothing is leased for it
        wish = request.wish
        if wish.init_mode == INIT_MAX and self._context.starts.is_unknown(wish.group, wish.topic):
            return self._learn(request)
        if not self.try_now(request):
            self._wait(request)
        return None

    async def _learn(self, request: PopRequest) -> None:
        """Ask other brokers whether the group reads the topic there, before it begins with the last message here."""
        await self._context.starts.learn(request.wish.group, request.wish.topic)
        self.try_again(request)

    def checked(self, connection: Connection, command: Command) -> PopRequest | Refusal:
        """Return a pop that may be tried, or why it is refused."""
        header = headers.parse(command.code, command.ext)
        invisible_ms, longest_ms = header.integer("invisibleTime"), self._service.rules.invisible_ms_max
        refused = self.refusal(header, header.integer("maxMsgNums"))
        if refused is None and not 0 < invisible_ms <= longest_ms:
            remark = f"invisibleTime[{invisible_ms}] is illegal, it has to be from 1 to {longest_ms} ms"
            refused = Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if refused is None and (owner := header.text("gantryOwner")) and (fault := names.client_fault(owner)):
            refused = Refusal(ResponseCode.INVALID_PARAMETER, f"gantryOwner: {fault}")
        if refused is None and len(header.text("gantryPop")) > _POP_NAME_MAX:
            remark = f"gantryPop has more than {_POP_NAME_MAX} characters"
            refused = Refusal(ResponseCode.INVALID_PARAMETER, remark)
        wanted = self._checks.parsed(header.text("expType") or None, header.text("exp") or None)
        if refused is not None or isinstance(wanted, PullRefusal):
            return refused or Refusal(wanted.code, wanted.remark)  # type: ignore[union-attr]
        wish = Wish(
            header.text("consumerGroup"),
            header.text("topic"),
            max(-1, header.integer("queueId")),
            header.integer("maxMsgNums"),
            invisible_ms,
            INIT_MAX if header.integer("initMode") == INIT_MAX else INIT_MIN,
            wanted,
            header.text("gantryOwner"),
            header.text("gantryOrder") == BY_PRIORITY,
            pop_name=header.text("gantryPop"),
        )
        until_ms = self._until_ms(header)
        return PopRequest(connection, command, wish, until_ms, header.boolean("order"), header.text("attemptId"))

    def notified(self, connection: Connection, command: Command) -> PopRequest | Refusal:
        """Return a NOTIFICATION that passed the checks of a pop, as the pop of one message that it asks about."""
        header = headers.parse(command.code, command.ext)
        refused = self.refusal(header, 1)
        wanted = self._checks.parsed(header.text("expType") or None, header.text("exp") or None)
        if refused is not None or isinstance(wanted, PullRefusal):
            return refused or Refusal(wanted.code, wanted.remark)  # type: ignore[union-attr]
        group, topic, queue_id = header.text("consumerGroup"), header.text("topic"), header.integer("queueId")
        wish = Wish(group, topic, max(-1, queue_id), 1, 0, INIT_MIN, wanted)
        until_ms = self._until_ms(header)
        return PopRequest(connection, command, wish, until_ms, header.boolean("order"), header.text("attemptId"))

    def _until_ms(self, header: Header) -> int:
        """Return until when a request may wait, in ms by the broker's clock.

        RocketMQ: counted from `bornTime`, which is of the client's clock: one that is a second behind gets nothing.
        """
        poll_ms = header.integer("pollTime")
        return self._context.clock.now_ms() + poll_ms if poll_ms > 0 else 0

    def refusal(self, header: Header, count: int) -> Refusal | None:
        """Return why a pop, peek or notification is refused, in RocketMQ's order; None when it is not."""
        rules, topic, group = self._service.rules, header.text("topic"), header.text("consumerGroup")
        queue_id = header.integer("queueId")
        if not self._checks.is_readable:
            return Refusal(ResponseCode.NO_PERMISSION, f"the broker[{rules.broker}] pop message is forbidden")
        if not 0 < count <= COUNT_MAX:
            remark = f"the broker[{rules.broker}] pop message's num is {count}, it has to be from 1 to {COUNT_MAX}"
            return Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if not rules.has_times:
            remark = f"the broker[{rules.broker}] pop message is forbidden because timerWheelEnable is false"
            return Refusal(ResponseCode.SYSTEM_ERROR, f"{remark}; switch delays.times on")
        config = self._context.topics.get(topic)
        if config is None:
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!")
        if not config.is_readable:
            return Refusal(ResponseCode.NO_PERMISSION, f"the topic[{topic}] peeking message is forbidden")
        if queue_id >= config.read_queues:
            remark = f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{config.read_queues}]"
            return Refusal(ResponseCode.INVALID_PARAMETER, f"{remark} consumer:[{group}]")
        known = self._context.groups.ensure(group)
        if known is None:
            remark = f"subscription group [{group[:60]}] does not exist"
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not known.consume_enable or self._context.groups.forbids_reading(group, topic):
            return Refusal(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}")
        if not self._context.offsets.has_room(group, topic):
            return Refusal(ResponseCode.SYSTEM_BUSY, no_room(group, topic))
        return None

    def try_now(self, request: PopRequest) -> bool:
        """Answer a pop if there are messages; False: there are none now.  True also when the answer comes later."""
        if request.is_order and self.in_order is not None:
            catch = self.in_order(request.wish, request.attempt_id)
        else:
            catch = self.taker.take(request.wish)
        if isinstance(catch, Refusal):
            self._refuse(request, catch)
        elif catch.taken:
            self._answer(request, catch)
            self._read_ahead(catch.cold)
        elif catch.cold:
            self._bring_in(request, catch)
        elif catch.is_unread:
            asyncio.get_running_loop().call_soon(self.try_again, request)
        else:
            return False
        return True

    def try_again(self, request: PopRequest) -> None:
        """Try a pop that waited once more, if its client is still there; it may wait again."""
        if request.connection.closed:
            return
        if not self._context.may_serve():
            self._refuse(request, _NO_SERVING_LEASE)
        elif not request.connection.is_writable:
            self.time_out(request)
        elif not self.try_now(request):
            self._wait(request)

    def time_out(self, request: PopRequest) -> None:
        """Answer that no messages came."""
        self._send(request, self.empty(request.command))

    def empty(self, command: Command, code: int = ResponseCode.POLLING_TIMEOUT, remark: str = "") -> Command:
        """Return an answer without messages; its header has the fields that clients read without checking."""
        self._service.counts.empty += code == ResponseCode.POLLING_TIMEOUT
        ext = answers.header(Catch(()), 0)
        return reply(command, code, remark or "NO_MESSAGE_IN_QUEUE", ext)

    def _wait(self, request: PopRequest) -> None:
        """Hold a pop, or answer that there is nothing.  Where it begins is durable before: else a crash might let the
        group begin with a later message, and skip those between.
        """
        newest = self._context.offsets.firsts.newest(request.wish.group, request.wish.topic)
        if not self._context.firsts.has(newest):
            self._context.firsts.then(lambda is_kept: self._begun(request, is_kept), newest)
        elif self.hold is None or self._context.clock.now_ms() >= request.until_ms:
            self.time_out(request)
        elif not self.hold(request):
            self._send(request, self.empty(request.command, ResponseCode.POLLING_FULL, "too many pops wait"))

    def _begun(self, request: PopRequest, is_kept: bool) -> None:
        """Go on with a pop when it is known whether the disk has where its group begins.

        What came meanwhile (a message, the acknowledgement of the batch before) woke only what was held already.
        """
        if is_kept:
            self.try_again(request)
        elif not request.connection.closed:
            self._refuse(request, _NOT_SAVED)

    def _answer(self, request: PopRequest, catch: Catch) -> None:
        context, wish = self._context, request.wish
        head, pieces = answers.found(request.command, catch, wish.invisible_ms, self._service.rules.broker, wish.topic)
        for one in catch.taken:
            self._service.counts.popped(wish.topic, wish.group, len(one.offsets), one.fetched.bytes)
        output: list[Chunk] = [head, *pieces]
        if request.command.is_oneway:
            return
        newest = context.offsets.firsts.newest(wish.group, wish.topic)
        if wish.init_mode == INIT_MAX and not context.firsts.has(newest):
            # The lease keeps the begin in the queues of these messages, and in no other that the pop looked into.
            context.firsts.then(lambda is_kept: self._deliver(request, output, is_kept), newest)
        else:
            self._deliver(request, output)

    def _deliver(self, request: PopRequest, output: list[Chunk], is_kept: bool = True) -> None:
        """Send leased messages when their leases are confirmed; not when it is unknown whether the begin is kept."""
        context, connection = self._context, request.connection
        end = context.store.written.offset
        if not is_kept:
            self._begun(request, is_kept)
        elif context.acks.waits(end):
            context.acks.park(end, connection, b"".join(output), 1)
        else:
            connection.writelines(output)

    def _bring_in(
        self, request: PopRequest, catch: Catch, then: Callable[[PopRequest], None] | None = None
    ) -> None:
        if self._reads >= _READS_MAX:
            remark = f"{self._reads} pops wait for the disk, which is as many as may; pop again later"
            self._refuse(request, Refusal(ResponseCode.SYSTEM_BUSY, remark))
            return
        self._reads += 1
        self._service.counts.cold += 1

        def is_in() -> None:
            self._reads -= 1
            request.reads += 1
            if request.reads >= _READS_OF_ONE:
                request.wish = request.wish._replace(may_wait=True)
            (then or self.try_again)(request)

        self._context.store.bring_in(catch.cold, is_in)

    def _read_ahead(self, places: Cold) -> None:
        """Have messages read that a pop passed over: else a queue waits for as long as the others have warm ones."""
        if not places or self._is_reading_ahead or self._reads >= _READS_MAX:
            return
        self._is_reading_ahead = True

        def is_in() -> None:
            self._is_reading_ahead = False

        self._context.store.bring_in(places, is_in)

    def _refuse(self, request: PopRequest, why: Refusal) -> None:
        self._service.counts.refused += 1
        self._send(request, self.empty(request.command, why.code, why.remark))

    def _send(self, request: PopRequest, answer: Command) -> None:
        if not request.command.is_oneway:
            request.connection.write(frames.encode(answer))

    def peek(self, connection: Connection, command: Command) -> Command | None:
        """PEEK_MESSAGE: messages that a pop would get, without a lease."""
        header = headers.parse(command.code, command.ext)
        count = header.integer("maxMsgNums")
        refused = self.refusal(header, count)
        if refused is not None:
            self._service.counts.refused += 1
            return self.empty(command, refused.code, refused.remark)
        group, topic, queue_id = header.text("consumerGroup"), header.text("topic"), header.integer("queueId")
        is_by_priority = header.text("gantryOrder") == BY_PRIORITY
        wish = Wish(group, topic, max(-1, queue_id), count, 0, INIT_MIN, None, is_by_priority=is_by_priority)
        request = PopRequest(connection, command, wish, 0, False, "")
        return self._peek(request)

    def _peek(self, request: PopRequest, is_again: bool = False) -> Command | None:
        """Answer a peek; once after its messages were read from the disk."""
        catch, connection = self.taker.look(request.wish), request.connection
        if catch.cold and not is_again and self._reads < _READS_MAX:
            self._bring_in(request, catch, self._peek_again)
            return None
        if not catch.taken:
            return self.empty(request.command)
        head, pieces = answers.found(request.command, catch, 0, self._service.rules.broker, request.wish.topic)
        if not request.command.is_oneway:
            connection.writelines([head, *pieces])
        return None

    def _peek_again(self, request: PopRequest) -> None:
        answer = None if request.connection.closed else self._peek(request, is_again=True)
        if answer is not None:
            self._send(request, answer)
