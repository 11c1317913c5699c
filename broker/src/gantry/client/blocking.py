"""The synchronous client: a producer and a puller on plain sockets, without asyncio.

For Spark executors, scripts and the command line, where a loop would be in the way.  It asks the same
questions as the asyncio client (`questions`) and follows the same rules after a failure (`trial`).

    with BlockingProducer("orders", nameserver="127.0.0.1:9876") as producer:
        producer.send(Message("Orders", b"..."))

One socket per address, one request at a time on each; callers in several threads take turns.  One thread
per client sends the heartbeats that keep a producer known and its connections open.  A connection that
the other side closed while it was idle is noticed before it is used, so that a rare sender does not meet
an unknown outcome.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Self, TypeVar

from gantry.client import questions
from gantry.client.filters import Filter, Sql, subscription_to
from gantry.client.hooks import Sending, around_send
from gantry.client.identity import Identity
from gantry.client.outgoing import Outgoing, prepare, prepare_batch
from gantry.client.question import Question
from gantry.client.questions import PullSettings
from gantry.client.results import PullResult, PullStatus, SendResult
from gantry.client.selector import Turn, by_key
from gantry.client.settings import ProducerSettings, check_group, nameserver_list
from gantry.client.trial import Trial
from gantry.clock import Clock, SystemClock
from gantry.errors import OutcomeUnknownError, RefusedError, RemoteProtocolError, UnreachableError
from gantry.leaves.frames import Command, encode
from gantry.model.message import Message
from gantry.model.names import TEMPLATE_TOPIC
from gantry.model.route import MessageQueue, TopicRoute
from gantry.transport.addresses import split_address
from gantry.wire.codes import ResponseCode
from gantry.wire.frame import FrameReader
from gantry.wire.heartbeat import Heartbeat

__all__ = [
    "BlockingProducer", "BlockingPuller", "Message", "MessageQueue", "PullResult", "PullStatus", "SendResult", "Sql",
]  # fmt: skip

T = TypeVar("T")

_CONNECT_S = 3.0
_TIMEOUT_S = 5.0
_HEARTBEAT_S = 30.0
_ROUTE_AGE_S = 30.0
_PULL_MARGIN_S = 5.0
_GOODBYE_S = 1.0
_READ_BYTES = 256 << 10


class _Link:
    """One socket, opened when needed; `hello` is sent first on every new one."""

    def __init__(self, address: str, hello: Callable[[], Question[None]] | None) -> None:
        self._address = address
        self._hello = hello
        self._turn = threading.Lock()
        self._socket: socket.socket | None = None
        self._reader = FrameReader()
        self._opaque = 0

    def ask(self, question: Question[T], timeout_s: float) -> T:
        """Send a request and wait for its answer."""
        deadline = time.monotonic() + timeout_s
        if not self._turn.acquire(timeout=timeout_s):
            raise UnreachableError(f"{self._address}: others were asking for {timeout_s:g} s")
        try:
            self._open(deadline)
            return question.read(self._exchange(question.command, deadline))
        finally:
            self._turn.release()

    def greet(self) -> None:
        """Send the hello again on an open connection that nobody is using."""
        if self._hello is None or self._socket is None or not self._turn.acquire(blocking=False):
            return
        try:
            self._exchange(self._hello().command, time.monotonic() + _CONNECT_S)
        except (OutcomeUnknownError, UnreachableError):
            self._close()
        finally:
            self._turn.release()

    def close(self) -> None:
        """Close the socket; the next question opens a new one."""
        with self._turn:
            self._close()

    def _open(self, deadline: float) -> None:
        if self._socket is not None and _is_silent(self._socket):
            return
        self._close()
        self._reader = FrameReader()
        try:
            timeout_s = max(0.001, min(_CONNECT_S, deadline - time.monotonic()))
            self._socket = socket.create_connection(split_address(self._address), timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError as error:
            raise UnreachableError(f"{self._address}: {error}") from error
        if self._hello is not None:
            try:
                self._exchange(self._hello().command, deadline)
            except OutcomeUnknownError as error:
                raise UnreachableError(f"{self._address}: {error}") from error

    def _exchange(self, command: Command, deadline: float) -> Command:
        assert self._socket is not None, "_open comes before _exchange"
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        command.opaque = self._opaque
        try:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            self._socket.sendall(encode(command))
            while True:
                self._socket.settimeout(max(0.001, deadline - time.monotonic()))
                data = self._socket.recv(_READ_BYTES)
                if not data:
                    raise ConnectionError("closed by the other side")
                for found in self._reader.feed(data):
                    if found.is_response and found.opaque == self._opaque:
                        return found
        except (OSError, RemoteProtocolError) as error:
            self._close()
            text = "no answer in time" if isinstance(error, TimeoutError) else str(error)
            raise OutcomeUnknownError(f"{self._address}: {text}") from error

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _is_silent(sock: socket.socket) -> bool:
    """Whether the other side has neither closed the connection nor said anything that nobody asked for."""
    return not select.select([sock], [], [], 0)[0]


class _BlockingSession:
    """Links to name servers and brokers, and the routes."""

    def __init__(self, nameserver: str | Sequence[str], hello: Callable[[], Question[None]] | None) -> None:
        self.nameservers = nameserver_list(nameserver)
        self._hello = hello
        self._guard = threading.Lock()  # of the tables below
        self._links: dict[str, _Link] = {}
        self._routes: dict[tuple[str, bool], tuple[float, TopicRoute]] = {}
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        if hello is not None:
            self._thread = threading.Thread(target=self._beat, name="gantry-heartbeat", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the heartbeats and close all links."""
        self._done.set()
        if self._thread is not None:
            self._thread.join(_CONNECT_S)
        for link in self._all_links():
            link.close()

    def ask(self, address: str, question: Question[T], timeout_s: float = _TIMEOUT_S) -> T:
        """Ask one broker or name server."""
        with self._guard:
            link = self._links.get(address)
            if link is None:
                hello = None if address in self.nameservers else self._hello
                link = self._links[address] = _Link(address, hello)
        return link.ask(question, timeout_s)

    def brokers(self) -> list[str]:
        """The brokers that were asked so far."""
        with self._guard:
            return [address for address in self._links if address not in self.nameservers]

    def route(self, topic: str, new_topics: bool = False) -> TopicRoute:
        """Where a topic's queues are, at most half a minute old; RefusedError 17 when nobody has it."""
        known = self._routes.get((topic, new_topics))
        if known is not None and time.monotonic() - known[0] < _ROUTE_AGE_S:
            return known[1]
        route = self._ask_nameserver(questions.route(topic))
        if route is None and new_topics:
            route = questions.route_of_new_topic(self._ask_nameserver(questions.route(TEMPLATE_TOPIC)))
        if route is None:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"no broker has the topic {topic}")
        with self._guard:
            self._routes[topic, new_topics] = time.monotonic(), route
        return route

    def doubt(self, topic: str) -> None:
        """Ask for the route again before the next use."""
        with self._guard:
            for new_topics in (False, True):
                self._routes.pop((topic, new_topics), None)

    def _ask_nameserver(self, question: Question[T]) -> T:
        failure: Exception | None = None
        for address in self.nameservers:
            try:
                return self.ask(address, question)
            except (UnreachableError, OutcomeUnknownError) as error:
                failure = error
        raise UnreachableError(f"no name server answers, tried {', '.join(self.nameservers)}: {failure}") from failure

    def _all_links(self) -> list[_Link]:
        with self._guard:
            return list(self._links.values())

    def _beat(self) -> None:
        while not self._done.wait(_HEARTBEAT_S):
            for link in self._all_links():
                link.greet()


def _master(route: TopicRoute, queue: MessageQueue) -> str:
    broker = route.broker(queue.broker_name)
    if broker is None or broker.master is None:
        raise UnreachableError(f"{queue.broker_name}: no master known for topic {queue.topic}")
    return broker.master


class BlockingProducer:
    """Sends and waits for the acknowledgement; what it returns and raises is as with `producer.Producer`."""

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
        self._identity = Identity(nameserver_list(nameserver)[0], self._clock)
        self._turn = Turn(self._identity.random.randrange(1 << 16))
        hello = Heartbeat(self._identity.client_id, (group,))
        self._session = _BlockingSession(nameserver, lambda: questions.heartbeat(hello))

    def close(self) -> None:
        """Say goodbye to the brokers and close."""
        goodbye = questions.unregister(self._identity.client_id, self.group, None)
        for address in self._session.brokers():
            try:
                self._session.ask(address, goodbye, _GOODBYE_S)
            except (RefusedError, UnreachableError, OutcomeUnknownError):
                continue  # it notices when the connection closes
        self._session.close()

    def __enter__(self) -> Self:
        """The producer itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """close()"""
        self.close()

    def send(
        self, message: Message, *, key: str = "", queue: MessageQueue | None = None, timeout_s: float | None = None
    ) -> SendResult:
        """Send one message."""
        sending = Sending(self.group, [message])
        with around_send(self._settings.hooks, sending):
            (message,) = sending.messages
            compression = self._settings.compress_over_bytes, self._settings.compression
            outgoing = prepare(message, self._identity.message_ids, self._clock.now_ms(), *compression)
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
        """Send messages of one topic that are stored together or not at all."""
        sending = Sending(self.group, list(messages))
        with around_send(self._settings.hooks, sending):
            outgoing = prepare_batch(sending.messages, self._identity.message_ids, self._clock.now_ms())
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
                    if trial.unknown is None:
                        raise
                    raise trial.unknown from error
            time.sleep(pause_s)

    def _attempt(
        self, outgoing: Outgoing, key: str, queue: MessageQueue | None, trial: Trial, deadline: float
    ) -> SendResult:
        route = self._session.route(outgoing.topic, new_topics=True)
        queues = route.queues_to_write(outgoing.topic)
        if not queues:
            remark = f"topic {outgoing.topic} has no queue that may be written to now"
            raise RefusedError(ResponseCode.NO_PERMISSION, remark)
        trial.groups = len({one.broker_name for one in queues})
        if queue is None:
            queue = by_key(queues, key) if key else self._turn.select(queues, trial.failed_groups)
        trial.current = queue.broker_name
        timeout_s = max(0.001, min(self._settings.attempt_timeout_s, deadline - time.monotonic()))
        return self._session.ask(_master(route, queue), questions.send(self.group, outgoing, queue), timeout_s)


class BlockingPuller:
    """Pulls, as `puller.Puller` does."""

    def __init__(self, group: str, *, nameserver: str | Sequence[str]) -> None:
        check_group(group)
        self.group = group
        self._session = _BlockingSession(nameserver, None)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def __enter__(self) -> Self:
        """The puller itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """close()"""
        self.close()

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic, in their order; RefusedError 17 when nobody has it."""
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
    ) -> PullResult:
        """Messages from `offset` on with one of the tags, or that fulfil an `Sql`; waits while there are none."""
        settings = PullSettings(self.group, subscription_to(queue.topic, tags), count_max, bytes_max, wait_s)
        return self._ask(queue, questions.pull(queue, offset, settings), wait_s + _PULL_MARGIN_S)

    def committed(self, queue: MessageQueue) -> int | None:
        """The offset that the group committed, None when it never did."""
        return self._ask(queue, questions.committed(self.group, queue, young_from_zero=False))

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """Let the group continue at `offset`."""
        question = questions.commit(self.group, queue, offset)
        try:
            self._ask(queue, question)
        except RefusedError as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            # A broker makes a group, where that is allowed, when the group pulls for the first time.
            self.pull(queue, offset, count_max=1)
            self._ask(queue, question)

    def min_offset(self, queue: MessageQueue) -> int:
        """The oldest message that is still there."""
        return max(0, self._ask(queue, questions.min_offset(queue)))

    def max_offset(self, queue: MessageQueue) -> int:
        """Where the next message will stand."""
        return self._ask(queue, questions.max_offset(queue))

    def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first message stored at or after an instant."""
        return self._ask(queue, questions.offset_at(queue, timestamp_ms))

    def _ask(self, queue: MessageQueue, question: Question[T], timeout_s: float = _TIMEOUT_S) -> T:
        address = _master(self._session.route(queue.topic), queue)
        try:
            return self._session.ask(address, question, timeout_s)
        except (RefusedError, UnreachableError, OutcomeUnknownError):
            self._session.doubt(queue.topic)
            raise
