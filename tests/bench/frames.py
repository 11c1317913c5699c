"""Just enough of the remoting protocol for what the C load generator does not play."""

from __future__ import annotations

import json
import socket
import struct


def frame(code: int, opaque: int, ext: dict[str, str], body: bytes = b"") -> bytes:
    """A request as a Java client writes it."""
    fields = {"code": code, "language": "JAVA", "version": 401, "opaque": opaque, "flag": 0, "extFields": ext}
    header = json.dumps(fields, separators=(",", ":")).encode()
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def receive(connection: socket.socket) -> bytes:
    """The next frame; nothing else may be under way behind it."""
    data = bytearray()
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        piece = connection.recv(65536)
        if not piece:
            raise SystemExit("the server closed a connection")
        data += piece
    return bytes(data)


def call(connection: socket.socket, request: bytes) -> bytes:
    """One request and its reply."""
    connection.sendall(request)
    return receive(connection)
