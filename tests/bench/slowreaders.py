"""Consumers that ask for much and read little: `python slowreaders.py PORT TOPIC COUNT` until it is ended.

Each connection has a small receive buffer and one pull of 32 messages under way, from the start of its queue on.  Of
the answer it reads 4 KiB every half second, so the rest waits in the broker or in the kernel.
"""

from __future__ import annotations

import socket
import sys
import time

from frames import frame

_PIECE, _PAUSE_S, _ROUND_S = 4096, 0.5, 0.05
_QUEUES = 8


class _Reader:
    """One connection, and how much of the answer under way is still to be read."""

    def __init__(self, port: int, topic: str, number: int) -> None:
        self._ext = {
            "consumerGroup": "slow", "topic": topic, "queueId": str(number % _QUEUES), "queueOffset": "0",
            "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
            "subVersion": "0", "expressionType": "TAG",
        }  # fmt: skip
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _PIECE)
        self._socket.connect(("127.0.0.1", port))
        self._socket.settimeout(30)
        self._ask()

    def _ask(self) -> None:
        self._socket.sendall(frame(11, 1, self._ext))
        self._left, self._head = -1, b""

    def read(self) -> None:
        """Take a piece; ask again behind the last one."""
        piece = self._socket.recv(_PIECE)
        if not piece:
            raise SystemExit("the broker closed a slow reader's connection")
        if self._left < 0:
            self._head += piece
            if len(self._head) < 4:
                return
            self._left, piece = 4 + int.from_bytes(self._head[:4], "big"), self._head
        self._left -= len(piece)
        if self._left <= 0:
            self._ask()


def main() -> None:
    """Open all, say so, and read in turns."""
    port, topic, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    readers = [_Reader(port, topic, number) for number in range(count)]
    print("reading", flush=True)
    steps = round(_PAUSE_S / _ROUND_S)
    for step in range(1 << 62):
        begun = time.monotonic()
        for reader in readers[step % steps :: steps]:
            reader.read()
        time.sleep(max(0.0, _ROUND_S - (time.monotonic() - begun)))


if __name__ == "__main__":
    main()
