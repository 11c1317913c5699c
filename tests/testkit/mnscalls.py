"""Calls of HTTP queues as a client makes them: signed, over one kept connection, answers read by Python's own XML."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import formatdate
from types import TracebackType
from xml.etree import ElementTree

from testkit.patience import HANG_S

SPACE = "{http://mns.aliyuncs.com/doc/v1}"


@dataclass(frozen=True)
class MnsReply:
    """An answer; `xml` is None where it has no body."""

    status: int
    headers: Mapping[str, str]
    xml: ElementTree.Element | None

    def text(self, name: str) -> str:
        """The text of the first element of this name, anywhere."""
        found = None if self.xml is None else next(self.xml.iter(SPACE + name), None)
        assert found is not None, f"no {name} in {self}"
        return found.text or ""

    def texts(self, name: str) -> list[str]:
        """The texts of all elements of this name, anywhere."""
        return [] if self.xml is None else [one.text or "" for one in self.xml.iter(SPACE + name)]

    def has(self, name: str) -> bool:
        """Whether there is such an element."""
        return bool(self.texts(name))

    @property
    def code(self) -> str:
        """The code of an error; empty for any other document."""
        return self.text("Code") if self.xml is not None and self.xml.tag == f"{SPACE}Error" else ""


class MnsCaller:
    """One client; without a user it does not sign."""

    def __init__(self, address: tuple[str, int], user: str = "", secret: str = "") -> None:
        self.address = address
        self._user, self._secret = user, secret
        self._connection = http.client.HTTPConnection(*address, timeout=HANG_S)

    def call(
        self, method: str, target: str, body: str | bytes = b"", headers: Mapping[str, str] | None = None
    ) -> MnsReply:
        """Make one call; AssertionError for an answer that lacks what every answer has."""
        data = body.encode() if isinstance(body, str) else body
        given = {"Date": formatdate(usegmt=True), "x-mns-version": "2015-06-06", "Content-Type": "text/xml"}
        given.update(headers or {})
        if self._user:
            given["Authorization"] = f"MNS {self._user}:{signature(self._secret, method, target, given)}"
        self._connection.request(method, target, data or None, given)
        answer = self._connection.getresponse()
        content = answer.read()
        lower = {name.lower(): value for name, value in answer.getheaders()}
        assert lower["x-mns-request-id"] and lower["x-mns-version"] == "2015-06-06" and lower["date"], lower
        xml = ElementTree.fromstring(content) if content else None
        if answer.status >= 400:
            assert xml is not None and lower["content-type"].startswith("text/xml"), (answer.status, content)
        reply = MnsReply(answer.status, lower, xml)
        if reply.code:
            assert reply.text("RequestId") == lower["x-mns-request-id"] and reply.text("Message"), content
        return reply

    def put(self, queue: str, **attributes: object) -> MnsReply:
        """Create a queue."""
        inner = "".join(f"<{name}>{value}</{name}>" for name, value in attributes.items())
        return self.call("PUT", f"/queues/{queue}", f"<Queue>{inner}</Queue>")

    def send(self, queue: str, body: str, **more: object) -> MnsReply:
        """Send one message."""
        inner = "".join(f"<{name}>{value}</{name}>" for name, value in more.items())
        document = f"<Message><MessageBody>{body}</MessageBody>{inner}</Message>"
        return self.call("POST", f"/queues/{queue}/messages", document)

    def receive(self, queue: str, wait_s: int = 0, count: int | None = None, is_peek: bool = False) -> MnsReply:
        """Receive or peek."""
        pairs = [f"waitseconds={wait_s}"] if not is_peek else ["peekonly=true"]
        pairs += [] if count is None else [f"numOfMessages={count}"]
        return self.call("GET", f"/queues/{queue}/messages?{'&'.join(pairs)}")

    def delete(self, queue: str, handle: str) -> MnsReply:
        """Delete one message."""
        return self.call("DELETE", f"/queues/{queue}/messages?ReceiptHandle={handle}")

    def change(self, queue: str, handle: str, seconds: int) -> MnsReply:
        """Change the visibility of one message."""
        return self.call("PUT", f"/queues/{queue}/messages?ReceiptHandle={handle}&VisibilityTimeout={seconds}")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> MnsCaller:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def signature(secret: str, method: str, target: str, headers: Mapping[str, str]) -> str:
    """What the header Authorization says after the colon."""
    lower = {name.lower(): value for name, value in headers.items()}
    own = "".join(f"{name}:{lower[name]}\n" for name in sorted(lower) if name.startswith("x-mns-"))
    words = [method, lower.get("content-md5", ""), lower.get("content-type", ""), lower.get("date", "")]
    text = "\n".join(words) + "\n" + own + target
    return base64.b64encode(hmac.new(secret.encode(), text.encode(), hashlib.sha1).digest()).decode()
