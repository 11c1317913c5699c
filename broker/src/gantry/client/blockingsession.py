"""Plain sockets to name servers and brokers, and the routes: what the synchronous client stands on.

One socket per address, one request at a time on each; callers in several threads take turns.  One thread sends the
heartbeats that keep a producer known and its connections open.  A connection that the other side closed while it was
idle is noticed before it is used, so that a rare caller does not meet an unknown outcome.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from gantry.client import questions
from gantry.client.question import Question
from gantry.client.settings import nameserver_list
from gantry.errors import OutcomeUnknownError, RefusedError, RemoteProtocolError, UnreachableError
from gantry.leaves.frames import Command, encode
from gantry.model.names import TEMPLATE_TOPIC
from gantry.model.route import MessageQueue, TopicRoute
from gantry.transport.addresses import split_address
from gantry.wire.codes import ResponseCode
from gantry.wire.frame import FrameReader

T = TypeVar("T")

TIMEOUT_S = 5.0
_CONNECT_S = 3.0
_HEARTBEAT_S = 30.0
_ROUTE_AGE_S = 30.0
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
    return not is_readable(sock, 0.0)


def is_readable(sock: socket.socket, wait_s: float) -> bool:
    """Whether something can be read within `wait_s` seconds, an end or an error too; in processes of any size."""
    watch = select.poll()  # select() knows the first 1024 files of a process only
    watch.register(sock, select.POLLIN)
    return bool(watch.poll(wait_s * 1000))


class BlockingSession:
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

    def ask(self, address: str, question: Question[T], timeout_s: float = TIMEOUT_S) -> T:
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


def master_of(route: TopicRoute, queue: MessageQueue) -> str:
    """The address of a queue's master; UnreachableError when its group has none now."""
    broker = route.broker(queue.broker_name)
    if broker is None or broker.master is None:
        raise UnreachableError(f"{queue.broker_name}: no master known for topic {queue.topic}")
    return broker.master
