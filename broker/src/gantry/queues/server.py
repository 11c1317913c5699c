"""The server of HTTP queues: the listener, what is the same for every call, and the parts behind it.

    start   connections to brokers are made when they are needed; the port opens last
    stop    the port closes, receives that wait are answered as empty, calls under way get a moment.  Leases stay as
            they are, and handles are good at any other server with the same keys

A call is checked in this order: target, signature, body, Content-MD5.  So nobody without a secret has a body read.
Every answer names the request in `x-mns-request-id`; the log and the answer's document have the same.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from gantry.clock import Clock, SystemClock
from gantry.errors import ConfigError, GantryError
from gantry.gateway.brokers import Brokers
from gantry.gateway.reach import Reach
from gantry.gateway.signed import SignedTexts
from gantry.queues import calls, faults, signature, xmlout
from gantry.queues.calls import CallAnswer, CallDoor, QueueCall
from gantry.queues.faults import QueueFaultError
from gantry.queues.handles import QueueHandles
from gantry.queues.listening import (
    BODIES_BYTES_MAX,
    BODY_BYTES_MAX,
    BODY_S,
    BodiesFullError,
    BodyShare,
    HttpListener,
    QueueConnection,
    body_of,
)
from gantry.queues.metrics import QueueMetrics
from gantry.queues.queuecalls import QueueCalls, QueueParts
from gantry.queues.receiving import QueueReceives
from gantry.queues.routing import DoorTable
from gantry.queues.sending import QueueSends
from gantry.queues.settling import QueueSettles
from gantry.queues.table import KnownQueues
from gantry.queues.topicservice import TopicService
from gantry.queues.users import Users
from gantry.transport.fairness import SharedPlaces
from gantry.transport.http import HealthServer
from gantry.transport.tasks import cancelled, essential

log = logging.getLogger(__name__)

VERSION = "2015-06-06"
_XML = "text/xml;charset=utf-8"
_DRAIN_S = 3.0
_METHODS = frozenset({"GET", "PUT", "POST", "DELETE"})


@dataclass(frozen=True, slots=True)
class QueueServerSettings:
    """Where the server listens and whom it asks; `keys` sign handles, the first one signs new ones."""

    nameservers: Sequence[str]
    keys: Sequence[bytes]
    host: str = "127.0.0.1"
    port: int = 9407
    http_port: int | None = None  # of health and metrics; None: no HTTP server
    users: Path | None = None  # a file of access ids and secrets; None: everybody may call
    may_push: bool = False  # to HTTP endpoints that subscribe to topics


class QueueServer:
    """One process of HTTP queues; start() and stop() once each."""

    def __init__(self, settings: QueueServerSettings, end: Callable[[], None], clock: Clock | None = None) -> None:
        """end: called when this process has to end; `failure` says why."""
        self.failure: str | None = None
        self._end = end
        self.port = settings.port
        self.http_port = settings.http_port
        self.answered: Counter[tuple[str, int, str]] = Counter()
        self._settings = settings
        self._clock = clock or SystemClock()
        self._users = Users(settings.users)
        self.brokers = Brokers(settings.nameservers, self._clock, lambda connection, command: False, tuple)
        handles = QueueHandles(SignedTexts(settings.keys))
        now_ms = self._clock.now_ms
        self.parts = QueueParts(
            self.brokers,
            handles,
            KnownQueues(self.brokers, now_ms),
            QueueSends(self.brokers, handles, now_ms),
            QueueReceives(self.brokers),
            QueueSettles(self.brokers, handles),
        )
        self._topics = TopicService(
            self.brokers, self.parts.queues, self.parts.sends, now_ms, settings.may_push
        )
        doors: dict[str, CallDoor] = {"queues": QueueCalls(self.parts, now_ms), **self._topics.doors}
        self._doors = DoorTable(doors)
        self._names = frozenset(doors)
        self._listener = HttpListener(self._handle, self._unparsed)
        self._bodies = SharedPlaces(BODIES_BYTES_MAX)  # bytes
        self._reach = Reach(self.brokers.masters, self.brokers.knock)
        self._http: HealthServer | None = None
        self._following: asyncio.Task[None] | None = None
        self._is_serving = False
        self._id = secrets.token_hex(8).upper()
        self._count = 0

    async def start(self) -> None:
        """Listen; ConfigError when that is not possible."""
        settings = self._settings
        self.brokers.start(self._fail)
        self._reach.start()
        self._following = essential(self._users.follow(), "gantry-queues-users", self._fail)
        if settings.http_port is not None:
            metrics = QueueMetrics(self.answered, self._gauges)
            self._http = HealthServer(
                settings.host, settings.http_port, lambda: metrics.text, self._healthy, self._ready
            )
            self.http_port = await self._http.start()
        try:
            self.port = await self._listener.start(settings.host, settings.port, self._fail)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}"
            ) from error
        self._topics.start()
        self._is_serving = True
        log.info("HTTP queues on port %d", self.port)

    async def stop(self) -> None:
        """Take no more calls, answer those that wait, and close."""
        self._is_serving = False
        self.parts.receives.drain()
        await self._listener.stop(_DRAIN_S)
        await self._topics.close()
        await self.parts.receives.close()
        await self.parts.queues.close()
        await self._reach.close()
        if self._following is not None:
            await cancelled([self._following])
        if self._http is not None:
            await self._http.close()
        await self.brokers.close()

    # A request

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, QueueConnection)
        connection.called()
        self._count += 1
        request_id = f"{self._id}{self._count & 0xFFFFFFFF:08X}"
        host = request.headers.get("Host", "")
        path: tuple[str, ...] = ()
        is_whole = True
        share = BodyShare(self._bodies, connection)
        try:
            target = calls.relative(request.raw_path)
            path, query = calls.split(target)
            headers = {name.lower(): value for name, value in request.headers.items()}
            user = self._checked(request.method, target, headers)
            is_whole = False
            body = await self._body(request, headers, share)
            is_whole = True
            call = QueueCall(request.method, target, path, query, headers, body, user, host)
            answer = await self._doors.serve(call)
            code = ""
        except GantryError as error:
            fault = faults.of_error(error)
            if fault.status >= 500:
                log.info("%s: %s %a: %s", request_id, request.method, "/".join(path), fault.text)
            code = fault.code
            host_id = f"http://{host[:255]}"
            answer = CallAnswer(fault.status, xmlout.error(fault.code, fault.text, request_id, host_id))
        finally:
            share.end()
            connection.answered()
        self.answered[self._label(request.method, path), answer.status, code] += 1
        response = self._response(answer, request_id)
        if not (is_whole and self._is_serving) or (code and request.body_exists and not request.content.is_eof()):
            response.force_close()
        return response

    def _checked(self, method: str, target: str, headers: Mapping[str, str]) -> str:
        users = self._users.secrets
        if users is None:
            return ""
        return signature.check(method, target, headers, users, self._clock.now_ms() / 1000)

    async def _body(self, request: web.BaseRequest, headers: Mapping[str, str], share: BodyShare) -> bytes:
        if not request.body_exists:
            return b""
        expects = headers.get("expect", "").lower() == "100-continue"
        try:
            body = await body_of(request, expects, share)
        except TimeoutError as error:
            raise QueueFaultError(408, "RequestTimeout", f"the body did not come within {BODY_S:g} s") from error
        except BodiesFullError as error:
            raise QueueFaultError(503, "ServiceUnavailable", f"{error}; try again later") from error
        except web.RequestPayloadError as error:
            text = "the body ends before its length, or is not framed"
            raise QueueFaultError(400, "InvalidArgument", text) from error
        if body is None:
            text = f"the body is longer than {BODY_BYTES_MAX} bytes; send fewer or smaller messages"
            raise QueueFaultError(413, "RequestEntityTooLarge", text)
        digest = headers.get("content-md5")
        if digest:
            signature.check_digest(digest, body)
        return body

    def _response(self, answer: CallAnswer, request_id: str) -> web.Response:
        headers = {"x-mns-request-id": request_id, "x-mns-version": VERSION, "Server": "GantryMQ", **answer.headers}
        if not answer.body:
            return web.Response(status=answer.status, headers=headers)
        headers["Content-Type"] = _XML
        return web.Response(body=answer.body, status=answer.status, headers=headers)

    def _unparsed(self, status: int, message: str) -> web.Response:
        self._count += 1
        request_id = f"{self._id}{self._count & 0xFFFFFFFF:08X}"
        code = "InternalError" if status >= 500 else "InvalidArgument"
        self.answered["unparsed", status, code] += 1
        text = message.strip().splitlines()[0][:200] if message.strip() else "the request could not be answered"
        return self._response(CallAnswer(status, xmlout.error(code, text, request_id, "")), request_id)

    def _label(self, method: str, path: tuple[str, ...]) -> str:
        """Return the kind of a call, of a bounded number of them."""
        if method not in _METHODS or (path and path[0] not in self._names):
            return "other"
        kind = path[2] if len(path) > 2 and path[2] == "messages" else ("one", "list", "one")[min(2, len(path))]
        return f"{method} {path[0] if path else '/'} {kind}"

    def _gauges(self) -> dict[str, int]:
        users = self._users.secrets
        return {
            "ready": int(self._ready()[0]),
            "connections": len(self._listener.open),
            "connections_refused": self._listener.refused,
            "connections_slow": self._listener.slow,
            "held": self.parts.receives.held,
            "users": 0 if users is None else len(users),
            **self._topics.gauges(),
        }

    def _fail(self, reason: str) -> None:
        log.critical("%s: the server of HTTP queues ends", reason)
        self.failure = reason
        self._end()

    def _healthy(self) -> tuple[bool, str]:
        return self._is_serving, f"{self.parts.receives.held} receives wait"

    def _ready(self) -> tuple[bool, str]:
        return self._reach.verdict() if self._is_serving else (False, "the server of HTTP queues ends")
