"""Delivers one published message to one subscriber: a queue of this cluster, or an HTTP endpoint.

An HTTP endpoint gets a POST, and its answer 2xx says that it has the message.  No redirection is followed, and of the
answer nothing but the status is read.  Requests are not signed: the published service signs with a key of its own that
nobody else has.  An endpoint that has to know its caller needs a secret in its URL, or a network of its own.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from collections.abc import Mapping

import aiohttp

from gantry.client.popped import PoppedMessage
from gantry.errors import GantryError, UnreachableError
from gantry.queues import userproperties
from gantry.queues.notifications import PublishedMessage, notification
from gantry.queues.sending import QueuePost, QueueSends
from gantry.queues.subscriptions import NotifyFormat, TopicSubscription
from gantry.queues.table import KnownQueues

PUSHES_MAX = 64  # at a time
PLACE_S = 8.0  # of waiting for one of them
PUSH_S = 10.0  # of one request, connecting included
_TYPES = {NotifyFormat.XML: "text/xml;charset=utf-8", NotifyFormat.JSON: "application/json;charset=utf-8"}


class PushFailedError(GantryError):
    """An HTTP endpoint did not take a message."""


class Deliveries:
    """Delivers to queues, and to HTTP endpoints; `close` at the end."""

    def __init__(self, queues: KnownQueues, sends: QueueSends) -> None:
        self._queues = queues
        self._sends = sends
        self._places = asyncio.Semaphore(PUSHES_MAX)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections to endpoints."""
        if self._session is not None:
            await self._session.close()

    async def deliver(self, one: TopicSubscription, message: PublishedMessage, popped: PoppedMessage) -> None:
        """Return when the subscriber has the message; QueueFaultError, PushFailedError and the errors of sends.

        UnreachableError also when too many other requests to endpoints are under way.
        """
        body = notification(message, one)
        if not one.queue:
            await self._push(one, message, body)
            return
        queue = await self._queues.get(one.queue)
        more = userproperties.kept(popped.stored.properties)
        await self._sends.one(queue, QueuePost(body, properties=more))

    async def _push(self, one: TopicSubscription, message: PublishedMessage, body: bytes) -> None:
        digest = hashlib.md5(body, usedforsecurity=False).hexdigest()
        headers = {
            "Content-Type": _TYPES.get(one.format, "text/plain;charset=utf-8"),
            "Content-MD5": base64.b64encode(digest.encode()).decode(),
            "User-Agent": "GantryMQ",
            "x-mns-version": "2015-06-06",
            "x-mns-request-id": secrets.token_hex(12).upper(),
        }
        if one.format is NotifyFormat.SIMPLIFIED:
            headers["x-mns-message-id"] = message.message_id
            if message.tag:
                headers["x-mns-message-tag"] = message.tag.encode("ascii", "replace").decode()
        try:
            async with asyncio.timeout(PLACE_S):
                await self._places.acquire()
        except TimeoutError as error:
            # No fault of this subscriber: other endpoints do not answer, and its message must not be given up for that.
            raise UnreachableError(f"{one.endpoint}: {PUSHES_MAX} requests to endpoints are under way") from error
        try:
            status = await self._post(one.endpoint, body, headers)
        finally:
            self._places.release()
        if not 200 <= status < 300:
            raise PushFailedError(f"{one.endpoint}: answered {status}, expected 2xx")

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=PUSH_S)
            self._session = aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())
        try:
            async with self._session.post(url, data=body, headers=headers, allow_redirects=False) as answer:
                return answer.status
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise PushFailedError(f"{url}: {type(error).__name__}: {error}") from error

