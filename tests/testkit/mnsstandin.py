"""A stand-in for a server of HTTP queues: one process, memory only, a clock that the test moves.

It answers as facts about the vendor's libraries say, with XML of its own making (ElementTree), so that the client's
writer and reader are not tested against themselves.  `faults` decides request by request what goes wrong:

    "drop"     the connection ends before anything is done
    "lose"     the request is carried out, and the connection ends without an answer
    a number   this status with a document of an error, nothing is done
"""

from __future__ import annotations

import hashlib
import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

from gantry.mns.signature import authorization, text_to_sign

NAMESPACE = "http://mns.aliyuncs.com/doc/v1"
START_MS = 1_790_000_000_000
_DEFAULTS = {
    "DelaySeconds": "0", "MaximumMessageSize": "65536", "MessageRetentionPeriod": "345600", "VisibilityTimeout": "30",
    "PollingWaitSeconds": "0", "LoggingEnabled": "False",
}  # fmt: skip
Reply = tuple[int, dict[str, str], bytes]
Fault = str | int | None


@dataclass
class Kept:
    """A message in the stand-in."""

    number: int
    text: str
    born_ms: int
    visible_ms: int
    priority: int
    handle: str = ""
    count: int = 0
    first_ms: int = 0


@dataclass
class KeptQueue:
    """A queue in the stand-in."""

    attributes: dict[str, str]
    messages: list[Kept] = field(default_factory=list)


class Standin:
    """The rules; `request` is the whole of them.  `seen` has method and target of every request."""

    def __init__(self, secrets: dict[str, str] | None = None) -> None:
        self.queues: dict[str, KeptQueue] = {}
        self.now_ms = START_MS
        self.seen: list[tuple[str, str]] = []
        self.faults: Callable[[str, str], Fault] = lambda _method, _target: None
        self._secrets = secrets or {}
        self._numbers = itertools.count(1)
        self._one_by_one = threading.Lock()

    def pass_s(self, seconds: float) -> None:
        """Let time pass."""
        self.now_ms += round(seconds * 1000)

    def visible(self, queue: str) -> list[str]:
        """The texts that a consumer could receive now."""
        return [each.text for each in self._alive(self.queues[queue]) if each.visible_ms <= self.now_ms]

    def left(self, queue: str) -> int:
        """How many messages are alive, visible or not."""
        return len(self._alive(self.queues[queue]))

    def request(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Reply:
        """Answer one request; those of several connections one by one."""
        with self._one_by_one:
            return self._request(method, target, headers, body)

    def _request(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Reply:
        self.seen.append((method, target))
        if self._secrets:
            access_id = headers.get("authorization", "MNS :").removeprefix("MNS ").partition(":")[0]
            text = text_to_sign(method, target, headers)
            right = authorization(access_id, self._secrets.get(access_id, ""), text)
            if access_id not in self._secrets or headers.get("authorization") != right:
                return _error(403, "SignatureDoesNotMatch")
        path = urlsplit(target)
        parts = path.path.strip("/").split("/")
        query = {name: values[0] for name, values in parse_qs(path.query, keep_blank_values=True).items()}
        if len(parts) == 1:
            return self._list(headers)
        if len(parts) == 2:
            return self._queue(method, parts[1], query, body)
        if parts[1] not in self.queues:
            return _error(404, "QueueNotExist")
        return self._messages(method, self.queues[parts[1]], query, body)

    def _list(self, headers: dict[str, str]) -> Reply:
        names = sorted(name for name in self.queues if name.startswith(headers.get("x-mns-prefix", "")))
        names = [name for name in names if name > headers.get("x-mns-marker", "")]
        page = names[: int(headers["x-mns-ret-number"])]
        root = ElementTree.Element("Queues", xmlns=NAMESPACE)
        for name in page:
            _add(ElementTree.SubElement(root, "Queue"), QueueURL=f"http://standin/queues/{name}")
        if len(names) > len(page):
            _add(root, NextMarker=page[-1])
        return _document(200, root)

    def _queue(self, method: str, name: str, query: dict[str, str], body: bytes) -> Reply:
        queue = self.queues.get(name)
        if method == "DELETE":
            self.queues.pop(name, None)
            return 204, {}, b""
        if method == "PUT":
            given = {_local(each.tag): each.text or "" for each in ElementTree.fromstring(body)}
            if "metaoverride" in query:
                if queue is None:
                    return _error(404, "QueueNotExist")
                queue.attributes.update(given)
                return 204, {}, b""
            if queue is None:
                self.queues[name] = KeptQueue({**_DEFAULTS, **given})
                return 201, {"Location": f"http://standin/queues/{name}"}, b""
            return (204, {}, b"") if queue.attributes == {**_DEFAULTS, **given} else _error(409, "QueueAlreadyExist")
        if queue is None:
            return _error(404, "QueueNotExist")
        alive = self._alive(queue)
        active = sum(each.visible_ms <= self.now_ms for each in alive)
        delayed = sum(each.visible_ms > self.now_ms and not each.count for each in alive)
        root = ElementTree.Element("Queue", xmlns=NAMESPACE)
        _add(
            root, QueueName=name, CreateTime=str(START_MS // 1000), LastModifyTime=str(START_MS // 1000),
            ActiveMessages=str(active), DelayMessages=str(delayed), InactiveMessages=str(len(alive) - active - delayed),
            **queue.attributes,
        )  # fmt: skip
        return _document(200, root)

    def _messages(self, method: str, queue: KeptQueue, query: dict[str, str], body: bytes) -> Reply:
        if method == "POST":
            return self._send(queue, ElementTree.fromstring(body))
        if method == "GET":
            return self._receive(queue, query)
        if method == "DELETE" and body:
            handles = [each.text or "" for each in ElementTree.fromstring(body)]
            return self._delete_many(queue, handles)
        found = self._leased(queue, query["ReceiptHandle"])
        if not query["ReceiptHandle"].startswith("handle-"):
            return _error(400, "ReceiptHandleError")
        if found is None:
            return _error(404, "MessageNotExist")
        if method == "DELETE":
            queue.messages.remove(found)
            return 204, {}, b""
        found.visible_ms = self.now_ms + int(query["VisibilityTimeout"]) * 1000
        found.handle = f"handle-{next(self._numbers)}/+="
        found.count = max(found.count, 0)
        root = ElementTree.Element("ChangeVisibility", xmlns=NAMESPACE)
        _add(root, ReceiptHandle=found.handle, NextVisibleTime=str(found.visible_ms))
        return _document(200, root)

    def _send(self, queue: KeptQueue, root: ElementTree.Element) -> Reply:
        many = _local(root.tag) == "Messages"
        answers, failed = [], False
        for each in root if many else [root]:
            answer = ElementTree.Element("Message")
            given = {_local(child.tag): child.text or "" for child in each}
            if len(given["MessageBody"].encode()) > int(queue.attributes["MaximumMessageSize"]):
                failed = True
                _add(answer, ErrorCode="MessageTooLong", ErrorMessage="too long")
            else:
                delay_s = int(given.get("DelaySeconds", queue.attributes["DelaySeconds"]))
                number = next(self._numbers)
                kept = Kept(number, given["MessageBody"], self.now_ms, self.now_ms + delay_s * 1000, 8)
                kept.priority = int(given.get("Priority", "8"))
                queue.messages.append(kept)
                _add(answer, MessageId=f"id-{number}", MessageBodyMD5=_md5(kept.text))
                if delay_s:
                    kept.handle = f"handle-{number}/+="
                    _add(answer, ReceiptHandle=kept.handle)
            answers.append(answer)
        if not many and failed:
            return _error(400, "MessageTooLong")
        if not many:
            answers[0].set("xmlns", NAMESPACE)
            return _document(201, answers[0])
        parent = ElementTree.Element("Messages", xmlns=NAMESPACE)
        parent.extend(answers)
        return _document(500 if failed else 201, parent)

    def _receive(self, queue: KeptQueue, query: dict[str, str]) -> Reply:
        due = [each for each in self._alive(queue) if each.visible_ms <= self.now_ms]
        due = sorted(due, key=lambda each: each.priority)[: int(query.get("numOfMessages", "1"))]
        if not due:
            return _error(404, "MessageNotExist")
        root = ElementTree.Element("Messages", xmlns=NAMESPACE)
        for each in due:
            fields = {"MessageId": f"id-{each.number}", "MessageBody": each.text, "MessageBodyMD5": _md5(each.text)}
            if "peekonly" not in query:
                each.count += 1
                each.first_ms = each.first_ms or self.now_ms
                each.handle = f"handle-{next(self._numbers)}/+="
                each.visible_ms = self.now_ms + int(queue.attributes["VisibilityTimeout"]) * 1000
                fields |= {"ReceiptHandle": each.handle, "NextVisibleTime": str(each.visible_ms)}
            fields |= {
                "EnqueueTime": str(each.born_ms), "FirstDequeueTime": str(each.first_ms or self.now_ms),
                "DequeueCount": str(each.count), "Priority": str(each.priority),
            }  # fmt: skip
            _add(ElementTree.SubElement(root, "Message"), **fields)
        if "numOfMessages" in query:
            return _document(200, root)
        root[0].set("xmlns", NAMESPACE)
        return _document(200, root[0])

    def _delete_many(self, queue: KeptQueue, handles: list[str]) -> Reply:
        root = ElementTree.Element("Errors", xmlns=NAMESPACE)
        for handle in handles:
            found = self._leased(queue, handle)
            if found is None:
                failed = ElementTree.SubElement(root, "Error")
                _add(failed, ErrorCode="MessageNotExist", ErrorMessage="void", ReceiptHandle=handle)
            else:
                queue.messages.remove(found)
        return _document(404, root) if len(root) else (204, {}, b"")

    def _alive(self, queue: KeptQueue) -> list[Kept]:
        life_ms = int(queue.attributes["MessageRetentionPeriod"]) * 1000
        queue.messages = [each for each in queue.messages if self.now_ms < each.born_ms + life_ms]
        return list(queue.messages)

    def _leased(self, queue: KeptQueue, handle: str) -> Kept | None:
        found = (each for each in self._alive(queue) if each.handle == handle and each.visible_ms > self.now_ms)
        return next(found, None)


@contextmanager
def served(standin: Standin) -> Iterator[str]:
    """Serve it on a free port of this machine; gives http://HOST:PORT."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            fault = standin.faults(self.command, self.path)
            if fault == "drop":
                return self._end()
            if isinstance(fault, int):
                status, headers, content = _error(fault, "InternalError")
            else:
                lower = {name.lower(): value for name, value in self.headers.items()}
                status, headers, content = standin.request(self.command, self.path, lower, body)
            if fault == "lose":
                return self._end()
            self.send_response_only(status)
            self.send_header("Date", formatdate(standin.now_ms / 1000, usegmt=True))
            self.send_header("x-mns-request-id", "5D3B4B5C1DF29E3E04BE31B2")
            self.send_header("Content-Length", str(len(content)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)
            return None

        do_GET = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815  as http.server wants them

        def _end(self) -> None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, *_arguments: object) -> None:
            """Not written."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _document(status: int, root: ElementTree.Element) -> Reply:
    # ElementTree leaves the carriage return as it is, and a parser reads a line feed then.
    written = ElementTree.tostring(root, encoding="utf-8").replace(b"\r", b"&#13;")
    return status, {"Content-Type": "text/xml;charset=utf-8"}, written


def _error(status: int, code: str) -> Reply:
    root = ElementTree.Element("Error", xmlns=NAMESPACE)
    _add(root, Code=code, Message="as the test wants it", RequestId="5D3B4B5C1DF29E3E04BE31B2", HostId="standin")
    return _document(status, root)


def _add(parent: ElementTree.Element, **texts: str) -> None:
    for name, text in texts.items():
        ElementTree.SubElement(parent, name).text = text


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest().upper()
