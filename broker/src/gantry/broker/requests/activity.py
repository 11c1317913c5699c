"""Which requests each member of a group serves, and how it refuses the others.

    an active master                     all: its log is confirmed, its transactions and delayed messages are read back
    a slave, a master not yet active     BY_EVERY_MEMBER and ALSO_WITHOUT_LEASE; others with where or when to ask again
    a master without a serving lease     ALSO_WITHOUT_LEASE; it was sealed, or neither its register nor its slaves
                                         answer it, so another one may lead

Without a register a master never loses its serving lease.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gantry.consume.slave_reads import NO_SERVING_LEASE
from gantry.leaves import frames
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply

if TYPE_CHECKING:
    from gantry.broker.requests.router import EndRun, PullRun, SendBackRun
    from gantry.broker.requests.wrappers import Cold
    from gantry.leaves.frames import Command, End, Pull
    from gantry.transport.connection import Connection

# Every code of the router's table is in exactly one of these three sets (tests/unit/broker/requests/test_activity.py).
# broker/docs/requests.md shows which one.

# Client registrations and information about the broker: they return no messages.  A new master needs the producers'
# heartbeats; a refused one would be repeated half a minute later, and transactions could not be checked until then.
ALSO_WITHOUT_LEASE = frozenset(
    {
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_BROKER_RUNTIME_INFO,
    }
)
BY_EVERY_MEMBER = frozenset(
    {
        RequestCode.QUERY_MESSAGE,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        RequestCode.GET_CONSUME_STATS,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.QUERY_TOPICS_BY_CONSUMER,
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
        RequestCode.LIST_LAG,
        RequestCode.GET_TOPIC_CONFIG,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.SHOW_RETENTION,
        RequestCode.QUERY_ASSIGNMENT,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        # Only pulls with an invalid header reach the table; the others are answered in batches.
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
    }
)
ONLY_BY_ACTIVE_MASTER = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        RequestCode.QUERY_CONSUME_TIME_SPAN,
        RequestCode.QUERY_CORRECTION_OFFSET,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.VIEW_BROKER_STATS_DATA,
        RequestCode.GET_BROKER_CONSUME_STATS,
        RequestCode.GET_ALL_PRODUCER_INFO,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        RequestCode.LIST_TRANSACTIONS,
        RequestCode.SHOW_TRANSACTION,
        RequestCode.SETTLE_TRANSACTION,
        RequestCode.DECIDE_BATCH,
        RequestCode.END_BATCH,
        RequestCode.LIST_SINKS,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.LIST_DELAYED,
        RequestCode.CANCEL_DELAYED,
        RequestCode.RECALL_MESSAGE,
        RequestCode.RETIME_DELAYED,
        RequestCode.QUEUE_STATS,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.POP_MESSAGE,
        RequestCode.PEEK_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.FORWARD_TO_DLQ,
        RequestCode.NOTIFICATION,
        RequestCode.POLLING_INFO,
        RequestCode.KEEP_POP_OWNERS,
        RequestCode.END_POP_OWNER,
    }
)
# RocketMQ's codes where it has special ones: clients go to another broker, or show the remark.
_REFUSED_WITH = {
    RequestCode.END_TRANSACTION: ResponseCode.SLAVE_NOT_AVAILABLE,
    RequestCode.RECALL_MESSAGE: ResponseCode.SLAVE_NOT_AVAILABLE,
    RequestCode.SEND_MESSAGE: ResponseCode.SYSTEM_BUSY,
    RequestCode.SEND_MESSAGE_V2: ResponseCode.SYSTEM_BUSY,
    RequestCode.SEND_BATCH_MESSAGE: ResponseCode.SYSTEM_BUSY,
    RequestCode.CONSUMER_SEND_MSG_BACK: ResponseCode.SYSTEM_BUSY,
}


class Activity:
    """Whether this broker is an active master; other requests are refused with where or when to ask again."""

    def __init__(self, may_serve: Callable[[], bool]) -> None:
        self.is_on = False
        self.has_read_back = False  # transactions and delayed messages; stays True after end()
        self._may_serve = may_serve
        self._is_over = False
        self._why_not: Callable[[], str] = lambda: "this broker is starting; ask again in a moment"

    def wait(self, why: Callable[[], str]) -> None:
        """Refuse requests until `begin` with this reason, which says where or when to ask again."""
        self._why_not = why

    def begin(self) -> None:
        """Become active, unless end() was called; transactions and delayed messages are read back."""
        self.is_on, self.has_read_back = not self._is_over, True

    def end(self, why: Callable[[], str]) -> None:
        """Become inactive for the rest of this broker's life."""
        self.is_on, self._is_over, self._why_not = False, True, why

    def guarded(self, table: Mapping[int, Cold]) -> dict[int, Cold]:
        """Return the table with handlers that refuse requests while this is inactive, or has no serving lease."""
        return {code: self._guarded(code, handler) for code, handler in table.items()}

    def _guarded(self, code: int, handler: Cold) -> Cold:
        if code in ALSO_WITHOUT_LEASE:
            return handler
        return self._guard_serving_lease(handler) if code in BY_EVERY_MEMBER else self._guard(handler)

    def guarded_pulls(self, pull_run: PullRun) -> PullRun:
        """Return the handler of pulls that refuses them without a serving lease: another master may lead by then."""

        def handle(connection: Connection, pulls: list[Pull]) -> None:
            if self._may_serve():
                pull_run(connection, pulls)
                return
            for pull in pulls:
                if not pull.is_oneway:
                    connection.write(frames.encode(reply(pull, ResponseCode.SYSTEM_BUSY, NO_SERVING_LEASE)))

        return handle

    def _guard_serving_lease(self, handler: Cold) -> Cold:
        def handle(connection: Connection, command: Command) -> object:
            if self._may_serve():
                return handler(connection, command)
            return reply(command, ResponseCode.SYSTEM_BUSY, NO_SERVING_LEASE)

        return handle  # type: ignore[return-value]  # the handler's result, or a Command

    def _guard(self, handler: Cold) -> Cold:
        def handle(connection: Connection, command: Command) -> object:
            if not self._may_serve():
                return reply(command, ResponseCode.SYSTEM_BUSY, NO_SERVING_LEASE)
            return handler(connection, command) if self.is_on else self._refusal(command)

        return handle  # type: ignore[return-value]  # whatever the handler gives, or a Command

    def guarded_ends(self, end_run: EndRun) -> EndRun:
        """Return the handler of ends of transactions that refuses them while this is inactive."""

        def handle(connection: Connection, ends: list[End]) -> None:
            if self.is_on:
                end_run(connection, ends)
                return
            for end in ends:
                if not end.is_oneway:
                    connection.write(frames.encode(self._refusal(end)))

        return handle

    def guarded_send_backs(self, take: SendBackRun) -> SendBackRun:
        """Return the handler of runs of send-backs that takes none while the table would refuse them."""
        return lambda run: take(run) if self.is_on and self._may_serve() else list(run)

    def _refusal(self, command: Command | End) -> Command:
        code = _REFUSED_WITH.get(RequestCode(command.code), ResponseCode.NO_PERMISSION)
        return reply(command, code, self._why_not())
