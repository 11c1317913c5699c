"""The bytes of requests that have not come whole on one connection of HTTP/2 (RFC 9113): counted as they pass.

gRPC's server keeps the beginning of each request until it is whole, up to 32 MiB for each of thousands of streams, and
tells nobody.  So frames are looked at on their way to it: DATA frames carry messages, each behind a flag and its length
(gRPC over HTTP/2).  Nothing is kept here but lengths.  What breaks the protocol is the server's to refuse: it ends the
connection.
"""

from __future__ import annotations

_PREFACE_BYTES, _HEAD_BYTES, _PREFIX_BYTES = 24, 9, 5
_DATA, _RST_STREAM = 0, 3
_END_STREAM, _PADDED = 0x1, 0x8
_STREAM_BYTES = 256  # of a request that has begun, besides what came of it


class _Request:
    """One stream with a message that is not whole."""

    __slots__ = ("came", "has_padding", "left", "prefix")

    def __init__(self) -> None:
        self.prefix = b""  # the beginning of a message's flag and length
        self.left = 0  # bytes of the message that are to come
        self.came = 0
        self.has_padding = False  # which nobody sends: then all counts until the stream ends


class RequestBytes:
    """Looks at what a client sends; `unfinished` is what the server keeps of it, about."""

    __slots__ = ("_ends", "_head", "_left", "_pads", "_requests", "_stream", "unfinished")

    def __init__(self) -> None:
        self.unfinished = 0
        self._requests: dict[int, _Request] = {}  # by stream
        self._head = b""  # the beginning of a frame's head
        self._left = _PREFACE_BYTES  # bytes of the frame that are to come
        self._stream = 0  # of the DATA frame that comes; 0: another frame
        self._ends = self._pads = False

    def look_at(self, data: bytes) -> None:
        """Count the next bytes that came."""
        at, end = 0, len(data)
        while at < end:
            if not self._left:
                taken = data[at : at + _HEAD_BYTES - len(self._head)]
                self._head += taken
                at += len(taken)
                if len(self._head) == _HEAD_BYTES:
                    self._begin_frame(self._head)
                continue
            until = min(end, at + self._left)
            if self._stream:
                self._count(data, at, until)
            self._left -= until - at
            at = until
            if not self._left and self._ends:
                self._end(self._stream)

    def _begin_frame(self, head: bytes) -> None:
        self._head = b""
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big") & 0x7FFFFFFF
        self._left = int.from_bytes(head[:3], "big")
        self._stream = stream if kind == _DATA else 0
        self._ends = kind == _DATA and bool(flags & _END_STREAM)
        self._pads = kind == _DATA and bool(flags & _PADDED)
        if kind == _RST_STREAM or (self._ends and not self._left):
            self._end(stream)

    def _count(self, data: bytes, at: int, until: int) -> None:
        request = self._requests.get(self._stream)
        if request is None:
            request = self._requests[self._stream] = _Request()
            self.unfinished += _STREAM_BYTES
        request.has_padding = request.has_padding or self._pads
        if request.has_padding:
            request.came += until - at
            self.unfinished += until - at
            return
        while at < until:
            if request.left:
                count = min(request.left, until - at)
                request.left -= count
                request.came += count
                self.unfinished += count
                at += count
            else:
                taken = data[at : min(until, at + _PREFIX_BYTES - len(request.prefix))]
                request.prefix += taken
                at += len(taken)
                if len(request.prefix) < _PREFIX_BYTES:
                    return
                request.left, request.prefix = int.from_bytes(request.prefix[1:], "big"), b""
            if not request.left:
                self.unfinished -= request.came
                request.came = 0
        if not request.left and not request.prefix:
            self._end(self._stream)

    def _end(self, stream: int) -> None:
        request = self._requests.pop(stream, None)
        if request is not None:
            self.unfinished -= request.came + _STREAM_BYTES
