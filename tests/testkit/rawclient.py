"""A producer and reader on one plain socket: what a client does, without a client's retries and comforts.

Used where a test must know exactly what was sent and what was answered, and when the connection died.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from types import TracebackType

from gantry.leaves import frames, records
from gantry.wire.codes import ResponseCode
from testkit.patience import HANG_S

SEND = 310
PULL = 11
MAX_OFFSET = 30
MIN_OFFSET = 31

FOUND = 0
# What a member says that is not a master yet, or has no serving lease for a moment; it has done nothing.
_REFUSED_FOR_NOW = (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.NO_PERMISSION)
_AGAIN_S = 0.05
_GROUP = "raw-client"


class RawClient:
    """One connection; requests may be sent ahead of their replies."""

    def __init__(self, address: tuple[str, int], timeout_s: float = HANG_S) -> None:
        self._socket = socket.create_connection(address, timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._replies: list[frames.Command] = []
        self._opaque = 0

    def send(self, topic: str, queue_id: int, body: bytes, keys: str = "") -> int:
        """Send one message (V2) without waiting; the opaque of its reply."""
        return self.request(SEND, send_fields(topic, queue_id, keys), body)

    def request(self, code: int, ext: dict[str, str], body: bytes = b"") -> int:
        """Send any request without waiting; the opaque of its reply."""
        self._opaque += 1
        self._socket.sendall(frames.encode(frames.Command(code, opaque=self._opaque, ext=ext, body=body)))
        return self._opaque

    def reply(self, timeout_s: float = HANG_S) -> frames.Command | None:
        """The next reply; None when none came in time.  ConnectionError when the connection ends."""
        until = time.monotonic() + timeout_s
        while not self._replies:
            left = until - time.monotonic()
            if left <= 0:
                return None
            self._socket.settimeout(left)
            try:
                piece = self._socket.recv(1 << 18)
            except TimeoutError:
                return None
            if not piece:
                raise ConnectionResetError("the broker closed the connection")
            self._received += piece
            used, commands = frames.decode(self._received, 0, len(self._received))
            del self._received[:used]
            self._replies += [one for one in commands if isinstance(one, frames.Command) and one.is_response]
        return self._replies.pop(0)

    def call(self, code: int, ext: dict[str, str], body: bytes = b"", timeout_s: float = HANG_S) -> frames.Command:
        """One request and its reply; nothing else may be under way."""
        opaque = self.request(code, ext, body)
        reply = self.reply(timeout_s)
        assert reply is not None, f"no answer to {code} within {timeout_s} s"
        assert reply.opaque == opaque
        return reply

    def ask(self, code: int, ext: dict[str, str], body: bytes = b"") -> frames.Command:
        """The reply of a member that serves; a request that is refused for the moment is sent again."""
        until, pause = time.monotonic() + HANG_S, threading.Event()
        while True:
            reply = self.call(code, ext, body)
            if reply.code not in _REFUSED_FOR_NOW:
                return reply
            assert time.monotonic() < until, f"{code} is refused for {HANG_S} s: {reply.code} {reply.remark}"
            pause.wait(_AGAIN_S)

    def read(self, topic: str, queue_id: int, start: int = 0) -> list[tuple[int, bytes]]:
        """(queue offset, body) of everything in a queue from `start` on."""
        found: list[tuple[int, bytes]] = []
        offset = start
        while True:
            reply = self.ask(PULL, pull_fields(topic, queue_id, offset))
            if reply.code != FOUND:
                return found
            found += split(reply.body)
            offset = int(reply.ext["nextBeginOffset"])

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def split(stored: bytes) -> list[tuple[int, bytes]]:
    """(queue offset, body) of the records in a pull's answer."""
    found, at = [], 0
    while at < len(stored):
        record = records.view(stored, at, len(stored))
        found.append((record.queue_offset, record.body))
        at += record.size
    return found


def send_fields(topic: str, queue_id: int, keys: str = "") -> dict[str, str]:
    """The header of a SEND_MESSAGE_V2."""
    return {
        "a": _GROUP,
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": f"KEYS\x01{keys}\x02" if keys else "",
        "j": "0",
        "k": "false",
        "m": "false",
    }


def pull_fields(topic: str, queue_id: int, offset: int) -> dict[str, str]:
    """The header of a PULL_MESSAGE that does not wait."""
    return {
        "consumerGroup": _GROUP,
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
