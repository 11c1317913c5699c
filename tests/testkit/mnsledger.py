"""A client of HTTP queues for a pod, of the standard library alone: it signs, and has all that fails tried again.

    python3 - HOST:PORT ID:SECRET create QUEUE               creates the queue, its messages invisible for 20 s
    python3 - HOST:PORT ID:SECRET send QUEUE PREFIX FILE     sends PREFIX-1, PREFIX-2, ... one at a time, until it is
                                                             ended; a body that is not acknowledged is sent again
    python3 - HOST:PORT ID:SECRET receive QUEUE FILE END     receives and deletes, until the file END is there and the
                                                             queue says that it has no message
    python3 - HOST:PORT ID:SECRET look QUEUE                 prints the status of one call that asks for the queue

FILE gets a line `body,milliseconds,queue,0` for each acknowledged send, or delete, like ledgers of `testkit.ledger`.
Deletes go over connections of their own, so by a Service mostly to another pod than the receive.
"""

from __future__ import annotations

import base64
import hmac
import http.client
import sys
import threading
import time
from email.utils import formatdate
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree

SPACE = "{http://mns.aliyuncs.com/doc/v1}"
CALL_S, AGAIN_S, LIFE_S = 20.0, 0.2, 900.0
COUNTS = ("ActiveMessages", "InactiveMessages", "DelayMessages")


class Caller:
    """Calls over one connection, made again after a failure."""

    def __init__(self, address: str, user: str) -> None:
        self._address, (self._id, self._secret) = address, user.split(":")
        self._connection: http.client.HTTPConnection | None = None

    def call(self, method: str, target: str, body: str = "") -> tuple[int, ElementTree.Element | None]:
        """The answer's status and document; OSError or HTTPException without one."""
        headers = {"Date": formatdate(usegmt=True), "Content-Type": "text/xml", "x-mns-version": "2015-06-06"}
        text = f"{method}\n\ntext/xml\n{headers['Date']}\nx-mns-version:2015-06-06\n{target}"
        digest = base64.b64encode(hmac.digest(self._secret.encode(), text.encode(), "sha1")).decode()
        headers["Authorization"] = f"MNS {self._id}:{digest}"
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self._address, timeout=CALL_S)
        try:
            self._connection.request(method, target, body.encode() or None, headers)
            answer = self._connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        return answer.status, ElementTree.fromstring(content) if content else None

    def until(self, done: set[int], method: str, target: str, body: str = "") -> tuple[int, ElementTree.Element | None]:
        """Call until the answer has one of these statuses."""
        while True:
            try:
                status, document = self.call(method, target, body)
                if status in done:
                    return status, document
                said = str(status)
            except (OSError, http.client.HTTPException) as error:
                said = repr(error)
            print(f"{method}: {said}", file=sys.stderr, flush=True)
            threading.Event().wait(AGAIN_S)

    def close(self) -> None:
        """End the connection; the next call makes another one."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def text(document: ElementTree.Element | None, name: str) -> str:
    """The text of the first element of this name."""
    return "" if document is None else (document.findtext(f".//{SPACE}{name}") or "")


def noted(book: Path, body: str) -> None:
    with book.open("a", buffering=1, encoding="utf-8") as ledger:
        ledger.write(f"{body},{int(time.time() * 1000)},queue,0\n")


def send(caller: Caller, queue: str, prefix: str, book: Path) -> None:
    """Send until it is ended."""
    number, end = 0, time.monotonic() + LIFE_S
    while time.monotonic() < end:
        number += 1
        body = f"<Message><MessageBody>{prefix}-{number}</MessageBody></Message>"
        caller.until({201}, "POST", f"/queues/{queue}/messages", body)
        noted(book, f"{prefix}-{number}")


def receive(caller: Caller, deleter: Caller, queue: str, book: Path, end: Path) -> None:
    """Receive and delete until nothing is left."""
    until = time.monotonic() + LIFE_S
    while time.monotonic() < until:
        status, found = caller.until({200, 404}, "GET", f"/queues/{queue}/messages?waitseconds=2")
        if status == 200:
            handle = quote(text(found, "ReceiptHandle"), safe="")
            # 404: the lease was over, so it comes again, unless a call without an answer had deleted it.
            deleter.until({204, 404}, "DELETE", f"/queues/{queue}/messages?ReceiptHandle={handle}")
            deleter.close()
            noted(book, text(found, "MessageBody"))
        elif end.exists():
            _, attributes = caller.until({200}, "GET", f"/queues/{queue}")
            if all(text(attributes, name) == "0" for name in COUNTS):
                return
    sys.exit("the queue did not become empty")


if __name__ == "__main__":
    where, user, what, name, *rest = sys.argv[1:]
    client = Caller(where, user)
    if what == "create":
        life = "<Queue><VisibilityTimeout>20</VisibilityTimeout></Queue>"
        client.until({201, 204}, "PUT", f"/queues/{name}", life)
    elif what == "send":
        send(client, name, rest[0], Path(rest[1]))
    elif what == "receive":
        receive(client, Caller(where, user), name, Path(rest[0]), Path(rest[1]))
    else:
        print(client.call("GET", f"/queues/{name}")[0])
