"""All calls below /queues: what each of them reads, does and answers (facts: mns).

    PUT    /queues/Q                     create; ?metaoverride=true: set attributes
    GET    /queues/Q, /queues            attributes and statistics; list
    DELETE /queues/Q
    POST   /queues/Q/messages            send one or many
    GET    /queues/Q/messages            receive or peek, one or many
    DELETE /queues/Q/messages            by ?ReceiptHandle, or many in a document
    PUT    /queues/Q/messages            change the visibility
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gantry.client.requests import queue_requests
from gantry.client.requests.pop_requests import ANY_QUEUE
from gantry.errors import GantryError
from gantry.gateway.brokers import Brokers
from gantry.model.httpqueue import GROUP
from gantry.model.message import StoredMessage
from gantry.model.route import MessageQueue
from gantry.queues import attributes, documents, faults, xmlin, xmlout
from gantry.queues.attributes import VISIBILITY_S_MAX, WAIT_S_MAX, KnownQueue, QueueSettings, described, whole
from gantry.queues.calls import CallAnswer, QueueCall
from gantry.queues.documents import BATCH_MAX
from gantry.queues.faults import QueueFaultError, malformed, no_message
from gantry.queues.handles import QueueHandles
from gantry.queues.receiving import QueueReceives
from gantry.queues.sending import QueueSends
from gantry.queues.settling import QueueSettles
from gantry.queues.table import KnownQueues

PAGE_MAX = 1_000
_PEEK_S = 3.0
_DONE = CallAnswer(204)


@dataclass(frozen=True, slots=True)
class QueueParts:
    """What the calls are made of."""

    brokers: Brokers
    handles: QueueHandles
    queues: KnownQueues
    sends: QueueSends
    receives: QueueReceives
    settles: QueueSettles


class QueueCalls:
    """The door of /queues."""

    def __init__(self, parts: QueueParts, now_ms: Callable[[], int]) -> None:
        self._parts = parts
        self._now_ms = now_ms
        self._messages = {"POST": self._send, "GET": self._receive, "DELETE": self._delete, "PUT": self._change}
        self._queues = {"PUT": self._put, "GET": self._show, "DELETE": self._drop}

    async def serve(self, call: QueueCall) -> CallAnswer:
        """Answer one call."""
        path = call.path
        if len(path) == 3 and path[2] == "messages" and call.method in self._messages:
            queue = self._parts.queues.at_hand(path[1]) or await self._parts.queues.get(path[1])
            return await self._messages[call.method](call, queue)
        if len(path) == 2 and call.method in self._queues:
            return await self._queues[call.method](call, path[1])
        if len(path) == 1 and call.method == "GET":
            return await self._list(call)
        text = f"{call.method[:20]} {call.target[:200]} is no call; see broker/docs/queues.md for all of them"
        raise QueueFaultError(405, "MethodNotAllowed", text)

    # Queues

    async def _put(self, call: QueueCall, name: str) -> CallAnswer:
        root = xmlin.read(call.body) if call.body else xmlin.XmlElement("Queue")
        queues = self._parts.queues
        if call.query.get("metaoverride", "").lower() == "true":
            attributes.asked(root, QueueSettings())  # so that a wrong document changes nothing anywhere
            await queues.alter(name, lambda settings: attributes.asked(root, settings))
            return _DONE
        is_new = await queues.create(name, attributes.asked(root, QueueSettings()))
        return CallAnswer(201 if is_new else 204, headers={"Location": _url(call, name)})

    async def _show(self, call: QueueCall, name: str) -> CallAnswer:
        queue = await self._parts.queues.get(name)
        counts = await self._parts.queues.stats(name)
        numbers = {
            "ActiveMessages": counts.active,
            "InactiveMessages": counts.inactive,
            "DelayMessages": counts.delayed,
        }
        statistics = "".join(xmlout.element(key, value) for key, value in numbers.items())
        return CallAnswer(200, xmlout.document("Queue", _meta(queue) + statistics))

    async def _drop(self, call: QueueCall, name: str) -> CallAnswer:
        await self._parts.queues.delete(name)
        return _DONE

    async def _list(self, call: QueueCall) -> CallAnswer:
        given = call.headers
        count = whole("x-mns-ret-number", given.get("x-mns-ret-number") or str(PAGE_MAX), 1, PAGE_MAX)
        found, following = await self._parts.queues.page(
            given.get("x-mns-prefix", ""), given.get("x-mns-marker", ""), count
        )
        has_meta = given.get("x-mns-with-meta", "").lower() == "true"
        items = [
            f"<Queue>{xmlout.element('QueueURL', _url(call, one.name))}{_meta(one) if has_meta else ''}</Queue>"
            for one in found
        ]
        marker = xmlout.element("NextMarker", following) if following else ""
        return CallAnswer(200, xmlout.document("Queues", "".join(items) + marker))

    # Messages

    async def _send(self, call: QueueCall, queue: KnownQueue) -> CallAnswer:
        posts, is_batch = documents.posts(xmlin.read(call.body))
        sends = self._parts.sends
        if not is_batch:
            done = await sends.one(queue, posts[0])
            return CallAnswer(201, xmlout.document("Message", documents.posted(done)))
        results = await sends.send(queue, posts)
        has_failed = any(isinstance(one, QueueFaultError) for one in results)
        return CallAnswer(500 if has_failed else 201, documents.all_posted(results))

    async def _receive(self, call: QueueCall, queue: KnownQueue) -> CallAnswer:
        query = call.query
        text = query.get("numofmessages")
        count = 1 if text is None else whole("numOfMessages", text, 1, BATCH_MAX)
        if query.get("peekonly", "").lower() == "true":
            looked = await self._peeked(queue, count)
            return _found([documents.peeked(one) for one in looked], text is not None)
        wait = query.get("waitseconds")
        wait_s = queue.settings.wait_s if wait is None else whole("waitseconds", wait, 0, WAIT_S_MAX)
        receives = self._parts.receives
        messages = await receives.receive(queue, count, wait_s)
        if messages:
            queue = await self._made_again(queue)
        leased = self._parts.handles.leased
        contents = [
            documents.received(one, leased(queue, one.receipt)) for one in messages if one.receipt is not None
        ]
        return _found(contents, text is not None)

    async def _peeked(self, queue: KnownQueue, count: int) -> list[StoredMessage]:
        """Return what receives would get, of all masters in the order of priorities; the error when none answers."""
        brokers = self._parts.brokers
        names = sorted({one.broker_name for one in await brokers.routes.to_read(queue.name)})
        asked = [
            brokers.until_done(
                name, queue_requests.peek(GROUP, MessageQueue(queue.name, name, ANY_QUEUE), count), _PEEK_S
            )
            for name in names
        ]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        found: list[StoredMessage] = []
        failures: list[GantryError] = []
        for answer in answers:
            if isinstance(answer, GantryError):
                failures.append(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found += answer
        if failures and len(failures) == len(answers):
            raise failures[0]
        return sorted(found, key=lambda one: (one.queue_id, one.store_ms))[:count]

    async def _delete(self, call: QueueCall, queue: KnownQueue) -> CallAnswer:
        handle = call.query.get("receipthandle")
        if handle is not None:
            queue = await self._of_handles(queue, [handle])
            await self._parts.settles.delete(queue, handle)
            return _DONE
        if not call.body:
            raise malformed("the call has neither ?ReceiptHandle= nor a ReceiptHandles document")
        handles = documents.receipt_handles(xmlin.read(call.body))
        results = await self._deleted(queue, handles)
        failed = [
            (one, faults.of_error(error)) for one, error in zip(handles, results, strict=True) if error is not None
        ]
        return CallAnswer(404, documents.deletion_errors(failed)) if failed else _DONE

    async def _deleted(self, queue: KnownQueue, handles: Sequence[str]) -> list[GantryError | None]:
        unknown: GantryError | None = None
        try:
            queue = await self._of_handles(queue, handles)
        except QueueFaultError:
            raise
        except GantryError as error:
            unknown = error  # whether these handles are void; the others are good whatever the answer is
        results = await self._parts.settles.delete_all(queue, handles)
        if unknown is not None:
            is_other = self._parts.handles.is_of_another_time
            for index, handle in enumerate(handles):
                if is_other(queue, handle):
                    results[index] = unknown
        return results

    async def _change(self, call: QueueCall, queue: KnownQueue) -> CallAnswer:
        handle, text = call.query.get("receipthandle", ""), call.query.get("visibilitytimeout", "")
        seconds = whole("VisibilityTimeout", text, 1, VISIBILITY_S_MAX)
        queue = await self._of_handles(queue, [handle])
        renewed = await self._parts.settles.change(queue, handle, seconds)
        visible_ms = self._now_ms() + seconds * 1000
        content = xmlout.element("ReceiptHandle", renewed) + xmlout.element("NextVisibleTime", visible_ms)
        return CallAnswer(200, xmlout.document("ChangeVisibility", content))

    async def _made_again(self, queue: KnownQueue) -> KnownQueue:
        """Return the queue whose messages a long poll got: it may have been made again while the call waited."""
        queues = self._parts.queues
        try:
            return queues.at_hand(queue.name) or await queues.get(queue.name)
        except QueueFaultError:
            raise
        except GantryError:
            return queue

    async def _of_handles(self, queue: KnownQueue, handles: Sequence[str]) -> KnownQueue:
        """Return the queue that handles are held against.

        Another server may have made it again: what is known here can be a second old, and older while a master is
        silent.  A commit whose handle is called void counts as done.
        """
        if any(self._parts.handles.is_of_another_time(queue, handle) for handle in handles):
            return await self._parts.queues.now(queue.name)
        return queue


def _found(contents: list[str], is_many: bool) -> CallAnswer:
    if not contents:
        raise no_message()
    if not is_many:
        return CallAnswer(200, xmlout.document("Message", contents[0]))
    return CallAnswer(200, xmlout.listing("Messages", "Message", contents))


def _meta(queue: KnownQueue) -> str:
    times = {"CreateTime": queue.created_s, "LastModifyTime": queue.modified_s}
    return (
        xmlout.element("QueueName", queue.name)
        + "".join(xmlout.element(name, value) for name, value in times.items())
        + described(queue.settings)
    )


def _url(call: QueueCall, name: str) -> str:
    return f"http://{documents.shown(call.host)[:255]}/queues/{name}"
