"""The table from request codes to handlers.

For each wake-up of a connection, neighbouring requests of one hot kind (sends, pulls, ends) go to their handler as one
batch.  All others go one by one through `table`, from code to handler.

Send-backs of all connections are gathered here, and those that need no closer look are taken together.  Sends may be
gathered by their handler.  Both are appended, those of all connections together, at the end of the loop's turn, and
before any other request of `table`, which may depend on them.  Ends of transactions do not: a half that is ended has
been answered, so it is in the log.  So where only sends and ends came, those of each kind are one batch.

A handler of the table returns a Command, None (it answers later, or not at all), or an awaitable of either; the number
of pending awaitables is bounded, also that of each client (`transport.fairness`).  A code without a handler is answered
with REQUEST_CODE_NOT_SUPPORTED.  Code 10 and other hot codes reach the table only when their header is invalid.

This is the only `except Exception` of the broker: an exception of a handler becomes SYSTEM_ERROR for the client, a
count, and one log line for each cause and minute.  One-way requests are never answered.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Protocol, TypeVar

from gantry.broker.complaints import Complaints
from gantry.broker.requests.bounds import why_too_large
from gantry.broker.requests.wrappers import Answer, Cold, ill_formed, kept, long
from gantry.errors import RefusedError
from gantry.leaves import frames
from gantry.leaves.frames import Command
from gantry.transport.fairness import FairTurns, SharedPlaces
from gantry.wire.bodies import MalformedBodyError
from gantry.wire.codes import RequestCode, ResponseCode, unsupported_remark
from gantry.wire.command import Request, encode_answer, reply
from gantry.wire.headers import HeaderError

if TYPE_CHECKING:
    from gantry.broker.requests.handlers import Handlers
    from gantry.transport.connection import Connection

PullRun = Callable[["Connection", list[frames.Pull]], None]
_Hot = TypeVar("_Hot", frames.Pull, frames.End)
EndRun = Callable[["Connection", list[frames.End]], None]
SendBackRun = Callable[[list[tuple["Connection", Command]]], list[tuple["Connection", Command]]]
"""Takes send-backs; returns those that need a closer look, one by one."""

_SEND_BACK = RequestCode.CONSUMER_SEND_MSG_BACK
_SENT_BACK_MAX = 1024  # gathered at a time; more together are not cheaper
_TASKS_MAX = 10_000
_LONG_AT_ONCE = 2


class Sends(Protocol):
    """The used part of `produce.send.Sending`."""

    gathered_bytes: int  # 0: nothing is gathered

    def send_run(self, connection: Connection, sends: list[frames.Send]) -> None:
        """Append a batch of sends, gather it for later, or refuse it."""
        ...

    def gather(self, runs: list[tuple[Connection, list[frames.Send]]]) -> bool:
        """Gather plain batches of several connections; False, and nothing is done, when they need a closer look."""
        ...

    def append_gathered(self) -> None:
        """Append the sends that were gathered so far."""
        ...

    def unanswered(self) -> list[tuple[Connection, list[frames.Send]]]:
        """Return the sends without an answer, after one of the two has raised."""
        ...


class Router:
    """Passes requests to their handlers and makes sure that each is answered."""

    def __init__(
        self,
        sends: Sends,
        pulls: PullRun,
        ends: EndRun,
        send_backs: SendBackRun,
        table: Mapping[int, Cold],
        complaints: Complaints,
        soon: Callable[[Callable[[], None]], object],  # calls a function after this turn's sockets were read
    ) -> None:
        self.requests: Counter[int] = Counter()  # by code
        self.errors: dict[int, int] = {}  # exceptions of handlers, by code
        self._sends = sends
        self._soon = soon
        self._is_end_due = False
        self._pulls = pulls
        self._ends = ends
        self._send_backs = send_backs
        self._sent_back: list[tuple[Connection, Command]] = []  # in this turn of the loop, not yet taken
        self._table = table
        self._complaints = complaints
        self._tasks: dict[asyncio.Future[Answer], None] = {}
        self._places = SharedPlaces(_TASKS_MAX)  # of the tasks

    def codes(self) -> list[int]:
        """Return the request codes of the table."""
        return list(self._table)

    async def answered(self) -> None:
        """Wait until all requests that are pending now are answered."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def on_requests(self, connection: Connection, requests: list[Request]) -> None:
        """Serve requests of one wake-up of a connection, in order: hot ones at once, others while there is time."""
        if len(requests) > 1 and len(kinds := set(map(type, requests))) > 1:
            if kinds == {frames.Send, frames.End}:
                requests = sorted(requests, key=lambda request: type(request) is not type(requests[0]))
            for kind, run in groupby(requests, type):
                if connection.has_postponed:
                    connection.postpone(list(run))
                else:
                    self._run(connection, kind, list(run))
        else:
            self._run(connection, type(requests[0]), requests)

    def on_sends(self, runs: list[tuple[Connection, list[frames.Send]]]) -> bool:
        """Gather what several connections sent at the same time; False: serve each of them by `on_requests`."""
        try:
            if not self._sends.gather(runs):
                return False
        except Exception as error:  # noqa: BLE001  the router's guard
            self._sends_failed(error)
        for code, count in Counter([sends[0].code for _, sends in runs for _ in sends]).items():
            self.requests[code] += count
        self._end_soon()
        return True

    def _run(self, connection: Connection, kind: type[Request], run: list[Request]) -> None:
        """Serve neighbouring requests of one kind."""
        if kind is frames.Send:
            self._run_sends(connection, run)  # type: ignore[arg-type]  # all of one kind
        elif kind is frames.Pull:
            self._run_hot(self._pulls, connection, run)  # type: ignore[type-var, arg-type]
        elif kind is frames.End:
            self._run_hot(self._ends, connection, run)  # type: ignore[type-var, arg-type]
        else:
            for nth, command in enumerate(run):
                if connection.closed:
                    break  # the connection ended in the middle of the batch
                if command.code == _SEND_BACK and why_too_large(command) is None:  # type: ignore[arg-type]
                    self._sent_back.append((connection, command))  # type: ignore[arg-type]
                    if len(self._sent_back) >= _SENT_BACK_MAX:
                        self._take_sent_back()
                        if nth + 1 < len(run) and connection.must_wait():
                            connection.postpone(run[nth + 1 :])
                            break
                    continue
                if nth and connection.must_wait():
                    connection.postpone(run[nth:])
                    break
                if self._sends.gathered_bytes or self._sent_back:
                    self._append_gathered()
                self._run_command(connection, command)  # type: ignore[arg-type]
            self._end_soon()

    def stop(self) -> None:
        """Append gathered sends, and cancel pending answers, because the connections are closed next."""
        self._append_gathered()
        for task in list(self._tasks):
            task.cancel()

    def _run_sends(self, connection: Connection, sends: list[frames.Send]) -> None:
        self.requests[sends[0].code] += len(sends)
        try:
            self._sends.send_run(connection, sends)
        except Exception as error:  # noqa: BLE001  the router's guard
            self._sends_failed(error)
        self._end_soon()

    def _end_soon(self) -> None:
        if not self._is_end_due and (self._sends.gathered_bytes or self._sent_back):
            self._is_end_due = True
            self._soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_end_due = False
        self._append_gathered()

    def _append_gathered(self) -> None:
        try:
            self._sends.append_gathered()
        except Exception as error:  # noqa: BLE001  the router's guard
            self._sends_failed(error)
        if self._sent_back:
            self._take_sent_back()

    def _take_sent_back(self) -> None:
        run, self._sent_back = self._sent_back, []
        count = len(run)
        try:
            left = self._send_backs(run)
        except Exception as error:  # noqa: BLE001  the router's guard
            self.requests[_SEND_BACK] += count
            for connection, command in run:  # those whose copy is in the log are not in it any more
                self._failed(connection, (command,), error)
            return
        self.requests[_SEND_BACK] += count - len(left)
        for connection, command in left:
            self._run_command(connection, command)

    def _sends_failed(self, error: Exception) -> None:
        for connection, sends in self._sends.unanswered():
            if sends:
                self._failed(connection, sends, error)

    def _run_hot(
        self, handler: Callable[[Connection, list[_Hot]], None], connection: Connection, run: list[_Hot]
    ) -> None:
        self.requests[run[0].code] += len(run)
        try:
            handler(connection, run)
        except Exception as error:  # noqa: BLE001  the router's guard
            self._failed(connection, run, error)

    def _run_command(self, connection: Connection, command: Command) -> None:
        handler = self._table.get(command.code)
        if handler is None:
            self.requests[-1] += 1
            code, remark = ResponseCode.REQUEST_CODE_NOT_SUPPORTED, unsupported_remark(command.code)
            self._answer(connection, command, reply(command, code, remark))
            return
        self.requests[command.code] += 1
        if (too_large := why_too_large(command)) is not None:
            self._answer(connection, command, reply(command, ResponseCode.INVALID_PARAMETER, too_large))
            return
        try:
            answer = handler(connection, command)
        except Exception as error:  # noqa: BLE001  the router's guard
            self._failed(connection, (command,), error)
            return
        if answer is None or isinstance(answer, Command):
            self._answer(connection, command, answer)
        else:
            self._await(connection, command, answer)

    def _await(self, connection: Connection, command: Command, answer: Awaitable[Answer]) -> None:
        if not self._places.take(connection):
            if asyncio.iscoroutine(answer):
                answer.close()
            remark = f"[OVERLOAD] {len(self._tasks)} requests are under way, and this client has its share of them"
            self._answer(connection, command, reply(command, ResponseCode.SYSTEM_BUSY, remark))
            return
        task = asyncio.ensure_future(answer)  # not wrapped: a stop may come before it begins
        self._tasks[task] = None
        task.add_done_callback(partial(self._answer_later, connection, command))

    def _answer_later(self, connection: Connection, command: Command, task: asyncio.Future[Answer]) -> None:
        del self._tasks[task]
        self._places.give_back(connection)
        if task.cancelled():
            return
        try:
            self._answer(connection, command, task.result())
        except Exception as error:  # noqa: BLE001  the router's guard
            self._failed(connection, (command,), error)

    def _answer(self, connection: Connection, command: Command, answer: Answer) -> None:
        if answer is not None and not command.is_oneway:
            connection.write(encode_answer(command, answer))

    def _failed(self, connection: Connection, requests: Sequence[Request], error: Exception) -> None:
        code, remark = ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}"
        if isinstance(error, RefusedError):
            code, remark = ResponseCode(error.code), error.remark
        elif isinstance(error, HeaderError | MalformedBodyError):
            remark = str(error)
        else:
            first = requests[0]
            self.errors[first.code] = self.errors.get(first.code, 0) + 1
            cause = f"{first.code} {type(error).__name__} {error}"[:200]
            self._complaints.say(cause, f"request {first.code} of {connection.peer} failed: {error!r}", error)
        for request in requests:
            if not request.is_oneway:
                connection.write(frames.encode(reply(request, code, remark)))


def table(on: Handlers) -> dict[int, Cold]:
    """Return the table from code to handler; sends, pulls and ends with a valid header do not use it."""
    turns = FairTurns(_LONG_AT_ONCE)
    return {
        RequestCode.SEND_MESSAGE: ill_formed(RequestCode.SEND_MESSAGE),
        RequestCode.PULL_MESSAGE: ill_formed(RequestCode.PULL_MESSAGE),
        RequestCode.QUERY_MESSAGE: long(on.lookups.query, turns),
        RequestCode.QUERY_CONSUMER_OFFSET: on.offsets.query,
        RequestCode.UPDATE_CONSUMER_OFFSET: on.offsets.update,
        RequestCode.UPDATE_AND_CREATE_TOPIC: kept(on.topics.update, on.lacking, on.caught_up),
        RequestCode.GET_ALL_TOPIC_CONFIG: long(on.topics.all, turns),
        RequestCode.UPDATE_BROKER_CONFIG: on.admin.update_config,
        RequestCode.GET_BROKER_CONFIG: on.admin.get_config,
        RequestCode.GET_BROKER_RUNTIME_INFO: on.admin.runtime_info,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: on.lookups.search_offset,
        RequestCode.GET_MAX_OFFSET: on.lookups.max_offset,
        RequestCode.GET_MIN_OFFSET: on.lookups.min_offset,
        RequestCode.GET_EARLIEST_MSG_STORETIME: on.lookups.earliest_store_time,
        RequestCode.VIEW_MESSAGE_BY_ID: long(on.lookups.view, turns),
        RequestCode.HEART_BEAT: on.clients.heartbeat,
        RequestCode.UNREGISTER_CLIENT: on.clients.unregister,
        RequestCode.CONSUMER_SEND_MSG_BACK: on.send_back.send_back,
        RequestCode.END_TRANSACTION: ill_formed(RequestCode.END_TRANSACTION),
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: on.clients.consumer_list,
        RequestCode.LOCK_BATCH_MQ: on.locks.lock,
        RequestCode.UNLOCK_BATCH_MQ: on.locks.unlock,
        RequestCode.GET_ALL_CONSUMER_OFFSET: long(on.offsets.all, turns),
        RequestCode.GET_ALL_DELAY_OFFSET: on.delays.offsets,
        RequestCode.CHECK_CLIENT_CONFIG: on.clients.check_config,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: kept(on.groups.update, on.lacking),
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: long(on.groups.all, turns),
        RequestCode.GET_TOPIC_STATS_INFO: long(on.topic_stats.stats, turns),
        RequestCode.GET_CONSUMER_CONNECTION_LIST: long(on.connections.consumers, turns),
        RequestCode.GET_PRODUCER_CONNECTION_LIST: long(on.connections.producers, turns),
        RequestCode.GET_CONSUME_STATS: long(on.progress.consume_stats, turns),
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: kept(long(on.resets.reset, turns), on.lacking),
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: long(on.progress.topic_groups, turns),
        RequestCode.GET_CONSUMER_RUNNING_INFO: on.relays.running_info,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: on.relays.consume_directly,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: on.relays.status,
        RequestCode.QUERY_CONSUME_TIME_SPAN: long(on.surveys.time_span, turns),
        RequestCode.QUERY_CORRECTION_OFFSET: long(on.surveys.correction, turns),
        RequestCode.CLONE_GROUP_OFFSET: kept(long(on.surveys.clone, turns), on.lacking),
        RequestCode.VIEW_BROKER_STATS_DATA: on.surveys.view,
        RequestCode.GET_BROKER_CONSUME_STATS: long(on.surveys.all_groups, turns),
        RequestCode.GET_ALL_PRODUCER_INFO: long(on.connections.all_producers, turns),
        RequestCode.QUERY_TOPICS_BY_CONSUMER: long(on.progress.group_topics, turns),
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: on.connections.subscription,
        RequestCode.LIST_LAG: long(on.progress.lag, turns),
        RequestCode.DELETE_SUBSCRIPTIONGROUP: kept(on.groups.delete, on.lacking),
        RequestCode.DELETE_TOPIC_IN_BROKER: kept(on.topics.delete, on.lacking, on.caught_up),
        RequestCode.SEND_MESSAGE_V2: ill_formed(RequestCode.SEND_MESSAGE_V2),
        RequestCode.SEND_BATCH_MESSAGE: ill_formed(RequestCode.SEND_BATCH_MESSAGE),
        RequestCode.SEND_REPLY_MESSAGE: on.replies.send_reply,
        RequestCode.SEND_REPLY_MESSAGE_V2: on.replies.send_reply,
        RequestCode.GET_TOPIC_CONFIG: on.topics.get,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: on.groups.get,
        RequestCode.RESUME_CHECK_HALF_MESSAGE: on.transactions.resume,
        RequestCode.LIST_TRANSACTIONS: on.transactions.page,
        RequestCode.SHOW_TRANSACTION: on.transactions.show,
        RequestCode.SETTLE_TRANSACTION: on.transactions.settle,
        RequestCode.DECIDE_BATCH: on.batches.decide,
        RequestCode.END_BATCH: on.batches.end,
        RequestCode.LIST_SINKS: on.batches.page,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: on.disk.clean_queues,
        RequestCode.CLEAN_UNUSED_TOPIC: kept(on.disk.clean_topics, on.lacking),
        RequestCode.DELETE_EXPIRED_COMMITLOG: on.disk.delete_expired,
        RequestCode.SHOW_RETENTION: on.disk.show,
        RequestCode.LIST_DELAYED: on.delays.page,
        RequestCode.CANCEL_DELAYED: on.delays.cancel,
        RequestCode.RECALL_MESSAGE: on.delays.recall,
        RequestCode.RETIME_DELAYED: on.delays.retime,
        RequestCode.QUERY_ASSIGNMENT: on.assignments.query,
        RequestCode.SET_MESSAGE_REQUEST_MODE: kept(on.assignments.set_mode, on.lacking),
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: long(on.assignments.all_modes, turns),
        RequestCode.POP_MESSAGE: on.pops.pop,
        RequestCode.PEEK_MESSAGE: on.pops.peek,
        RequestCode.ACK_MESSAGE: on.popped.ack,
        RequestCode.BATCH_ACK_MESSAGE: on.popped.batch_ack,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME: on.popped.change,
        RequestCode.FORWARD_TO_DLQ: on.popped.forward_to_dlq,
        RequestCode.NOTIFICATION: on.polling.notification,
        RequestCode.POLLING_INFO: on.polling.polling_info,
        RequestCode.QUEUE_STATS: on.queue_stats.stats,
        RequestCode.KEEP_POP_OWNERS: on.owners.keep,
        RequestCode.END_POP_OWNER: on.owners.end,
        RequestCode.LITE_PULL_MESSAGE: ill_formed(RequestCode.LITE_PULL_MESSAGE),
    }
