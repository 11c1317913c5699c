"""Plain sockets to name servers and brokers, and the routes, for the synchronous client.

There is one socket for each address, with one request at a time; threads wait for each other.  One thread sends the
heartbeats that keep a producer registered and its connections open.  Before a connection is used it is checked whether
the other side closed it while it was idle, so that a rare caller does not get an unknown outcome.

`close` unregisters at the brokers, ends the thread, and closes the connections; each step also follows when the one
before it was interrupted.

A request that ends by any exception closes its connection.  A signal handler or a time limit may raise anywhere, and
the next request's bytes would continue half a frame.  A forked child opens its own connections (`transport.forked`).
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import TypeVar

from gantry.client.requests import questions
from gantry.client.requests.question import Question
from gantry.client.settings import nameserver_list
from gantry.errors import (
    ClosedError,
    GantryError,
    OutcomeUnknownError,
    RefusedError,
    RemoteProtocolError,
    UnreachableError,
)
from gantry.leaves.frames import Command, encode
from gantry.model.names import TEMPLATE_TOPIC
from gantry.model.route import MessageQueue, TopicRoute
from gantry.transport import forked
from gantry.transport.addresses import split_address
from gantry.wire.codes import ResponseCode
from gantry.wire.frame import FrameReader
from gantry.wire.heartbeat import Heartbeat

T = TypeVar("T")

TIMEOUT_S = 5.0
_CONNECT_S = 3.0
_HEARTBEAT_S = 30.0
_GOODBYE_S = 1.0
_ROUTE_AGE_S = 30.0
_READ_BYTES = 256 << 10


class _Link:
    """One socket, opened when needed; the heartbeat, if there is one, is the first request on every new one."""

    def __init__(self, address: str, heartbeat: Callable[[], Heartbeat] | None) -> None:
        self._address = address
        self._heartbeat = heartbeat
        self._turn = threading.RLock()  # knows its owner, so that an interrupted `ask` can tell whether it has it
        self._asker = 0  # id of the thread whose request is under way
        self._socket: socket.socket | None = None
        self._reader = FrameReader()
        self._opaque = 0
        self._is_abandoned = False

    def ask(self, question: Question[T], timeout_s: float) -> T:
        """Send a request and return its answer; UnreachableError when the time was over before it was sent."""
        deadline = time.monotonic() + timeout_s
        thread = threading.get_ident()
        if self._asker == thread:
            raise UnreachableError(f"{self._address}: this thread waits for an answer already; ask outside the handler")
        try:
            if not self._turn.acquire(timeout=max(0.0, timeout_s)):
                raise UnreachableError(f"{self._address}: others were asking for {timeout_s:g} s")
            self._asker = thread
            try:
                self._open(deadline)
                reply = self._exchange(question.command, deadline)
            except BaseException as error:
                self._close()  # half a frame may have been sent
                if self._is_abandoned and isinstance(error, Exception):
                    raise self._not_ours() from error
                raise
            if self._is_abandoned:
                raise self._not_ours()  # both parent and child would continue
        finally:
            if self._asker == thread:
                self._asker = 0
            try:
                self._turn.release()
            except RuntimeError:
                pass  # this thread did not hold it
        return question.read(reply)

    def greet(self) -> None:
        """Send the heartbeat again on an open connection that is not in use."""
        if self._heartbeat is None or self._socket is None or not self._turn.acquire(blocking=False):
            return
        try:
            if self._socket is not None:
                self._exchange(questions.heartbeat(self._heartbeat()).command, time.monotonic() + _CONNECT_S)
        except BaseException as error:
            self._close()
            if not isinstance(error, (OutcomeUnknownError, UnreachableError)):
                raise
        finally:
            self._turn.release()

    def close(self) -> None:
        """Close the socket; the next request opens a new one."""
        with self._turn:
            self._close()

    def abandon(self) -> None:
        """Close this process's copy of the socket in a forked child. A request under way belongs to the parent."""
        self._is_abandoned = True
        self._close()

    def _open(self, deadline: float) -> None:
        if self._socket is not None and _is_silent(self._socket):
            return
        self._close()
        self._reader = FrameReader()
        try:
            timeout_s = min(_CONNECT_S, self._left_s(deadline))
            sock = self._socket = socket.create_connection(split_address(self._address), timeout_s)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError as error:
            raise UnreachableError(f"{self._address}: {error}") from error
        if self._heartbeat is not None:
            try:
                self._exchange(questions.heartbeat(self._heartbeat()).command, deadline)
            except OutcomeUnknownError as error:
                raise UnreachableError(f"{self._address}: {error}") from error

    def _exchange(self, command: Command, deadline: float) -> Command:
        if self._is_abandoned:
            raise self._not_ours()
        sock = self._socket
        assert sock is not None, "_open comes before _exchange"
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        command.opaque = self._opaque
        left_s = self._left_s(deadline)
        try:
            sock.settimeout(left_s)
            sock.sendall(encode(command))
            while True:
                sock.settimeout(max(0.001, deadline - time.monotonic()))
                data = sock.recv(_READ_BYTES)
                if not data:
                    raise ConnectionError("closed by the other side")
                for found in self._reader.feed(data):
                    if found.is_response and found.opaque == self._opaque:
                        return found
        except (OSError, RemoteProtocolError) as error:
            text = f"no answer within {left_s:g} s" if isinstance(error, TimeoutError) else str(error)
            raise OutcomeUnknownError(f"{self._address}: {text}") from error

    def _not_ours(self) -> ClosedError:
        return ClosedError(f"{self._address}: the process was forked during this call; the parent goes on with it")

    def _left_s(self, deadline: float) -> float:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise UnreachableError(f"{self._address}: the time was over before the request was sent")
        return left_s

    def _close(self) -> None:
        leaving, self._socket = self._socket, None
        if leaving is not None:
            leaving.close()


def _is_silent(sock: socket.socket) -> bool:
    """Return whether the other side has neither closed the connection nor sent unexpected bytes."""
    return not is_readable(sock, 0.0)


def is_readable(sock: socket.socket, wait_s: float) -> bool:
    """Return whether bytes, an end or an error can be read within `wait_s` seconds; for any file number."""
    watch = select.poll()  # select() supports file numbers below 1024 only
    watch.register(sock, select.POLLIN)
    return bool(watch.poll(wait_s * 1000))


class BlockingSession:
    """Links to name servers and brokers by address, and the routes."""

    def __init__(self, nameserver: str | Sequence[str], heartbeat: Callable[[], Heartbeat] | None) -> None:
        self.nameservers = nameserver_list(nameserver)
        self._heartbeat = heartbeat  # returns the heartbeat to send; None: none is sent
        self._guard = threading.RLock()  # of the tables below; a signal handler may ask too
        self._links: dict[str, _Link] = {}
        self._routes: dict[tuple[str, bool], tuple[float, TopicRoute]] = {}
        self._done = threading.Event()
        self._thread: threading.Thread | None = None  # sends heartbeats, from the first question on
        forked.enrol(self)

    def forked(self) -> None:
        """Forget the parent's connections, locks and thread in a forked child; new ones are made when needed."""
        self._guard = threading.RLock()
        links, self._links = list(self._links.values()), {}
        for link in links:
            link.abandon()
        is_closed = self._done.is_set()
        self._done = threading.Event()
        if is_closed:
            self._done.set()
        self._thread = None

    def close(self) -> None:
        """Unregister at the brokers, stop the heartbeats and close all links; later requests raise ClosedError."""
        try:
            self._unregister()
        finally:
            self._done.set()
            with ExitStack() as ending:
                for link in self._all_links():
                    ending.callback(link.close)
                if self._thread is not None:
                    self._thread.join(_CONNECT_S)

    def ask(self, address: str, question: Question[T], timeout_s: float = TIMEOUT_S) -> T:
        """Send a request to one broker or name server and return its answer; ClosedError after close()."""
        if self._done.is_set():
            raise ClosedError(f"{address}: this client was closed; make a new one")
        with self._guard:
            if self._thread is None and self._heartbeat is not None:
                beating = threading.Thread(target=self._beat, name="gantry-heartbeat", daemon=True)
                beating.start()
                self._thread = beating
            link = self._links.get(address)
            if link is None:
                heartbeat = None if address in self.nameservers else self._heartbeat
                link = self._links[address] = _Link(address, heartbeat)
        return link.ask(question, timeout_s)

    def _unregister(self) -> None:
        if self._heartbeat is None:
            return
        with self._guard:
            brokers = [address for address in self._links if address not in self.nameservers]
        for address in brokers:
            # When it fails, the broker unregisters the producer as the connection closes.
            with suppress(RefusedError, UnreachableError, OutcomeUnknownError):
                self.ask(address, questions.unregister(self._heartbeat()), _GOODBYE_S)

    def route(self, topic: str, new_topics: bool = False, within_s: float = float("inf")) -> TopicRoute:
        """Return where a topic's queues are, at most 30 s old; RefusedError 17 when no broker has the topic.

        All name servers together are asked for `within_s` seconds at most.
        """
        known = self._routes.get((topic, new_topics))
        if known is not None and time.monotonic() - known[0] < _ROUTE_AGE_S:
            return known[1]
        # When there is an old route, half of the time is kept for sending by it.
        deadline = time.monotonic() + (within_s if known is None else within_s / 2)
        try:
            route, is_certain = self._look_up(questions.route(topic), deadline)
        except UnreachableError as error:
            if known is None or isinstance(error, ClosedError):
                raise
            route, is_certain = None, False
        if route is None and known is not None and not is_certain:
            route = known[1]  # brokers continue without name servers
        if route is None and new_topics:
            template, _ = self._look_up(questions.route(TEMPLATE_TOPIC), deadline)
            route = questions.route_of_new_topic(template)
        with self._guard:
            self._routes.pop((topic, new_topics), None)
            if route is not None:
                self._routes[topic, new_topics] = time.monotonic(), route
        if route is None:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"no broker has the topic {topic}")
        return route

    def doubt(self, topic: str) -> None:
        """Ask for the topic's route again before its next use."""
        with self._guard:
            for new_topics in (False, True):
                known = self._routes.get((topic, new_topics))
                if known is not None:
                    self._routes[topic, new_topics] = float("-inf"), known[1]

    def _look_up(self, question: Question[T | None], deadline: float) -> tuple[T | None, bool]:
        """Ask name servers until one has the route; like `Session.look_up`."""
        failure: GantryError | None = None
        silent = 0
        for done, address in enumerate(self.nameservers):
            # The remaining time is divided between the name servers, so that a silent one does not use all of it.
            share_s = (deadline - time.monotonic()) / (len(self.nameservers) - done)
            try:
                answer = self.ask(address, question, min(TIMEOUT_S, share_s))
            except ClosedError:
                raise
            except (UnreachableError, OutcomeUnknownError, RefusedError, RemoteProtocolError) as error:
                failure = error
                silent += 1
                continue
            if answer is not None:
                return answer, True
        if silent < len(self.nameservers):
            return None, not silent
        raise UnreachableError(f"no name server answers, tried {', '.join(self.nameservers)}: {failure}") from failure

    def _all_links(self) -> list[_Link]:
        with self._guard:
            return list(self._links.values())

    def _beat(self) -> None:
        done = self._done
        while not done.wait(_HEARTBEAT_S):
            for link in self._all_links():
                link.greet()


def master_of(route: TopicRoute, queue: MessageQueue) -> str:
    """Return the address of a queue's master; UnreachableError when its group has none now."""
    broker = route.broker(queue.broker_name)
    if broker is None or broker.master is None:
        raise UnreachableError(f"{queue.broker_name}: no master known for topic {queue.topic}")
    return broker.master
