"""The proxy's half of one telemetry stream: commands that wait to be written to the client.

A client that does not read must not fill the memory: a stream holds few commands, and refuses more.  What is lost by
that is asked or sent again: a broker repeats its check, a client its settings.
"""

from __future__ import annotations

import asyncio
from collections import deque

from gantry.proxy import messaging_pb2 as pb
from gantry.proxy.faults import FaultError

_WAITING_MAX = 64
_BYTES_MAX = 8 << 20


class Stream:
    """Commands in order; one task writes them, anybody may offer."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.fault: FaultError | None = None  # why it ended, when the client broke the protocol
        self._waiting: deque[tuple[int, pb.TelemetryCommand]] = deque()
        self._bytes = 0
        self._is_finished = False
        self._changed = asyncio.Event()

    def offer(self, command: pb.TelemetryCommand) -> bool:
        """Have a command written. Return False when the stream is over, or the client reads too slowly."""
        size = command.ByteSize()
        is_full = len(self._waiting) >= _WAITING_MAX or (self._waiting and self._bytes + size > _BYTES_MAX)
        if self._is_finished or is_full:
            return False
        self._waiting.append((size, command))
        self._bytes += size
        self._changed.set()
        return True

    def finish(self, fault: FaultError | None = None) -> None:
        """End the stream when all is written; with a fault at once."""
        self.fault = self.fault or fault
        self._is_finished = True
        self._changed.set()

    async def next(self) -> pb.TelemetryCommand | None:
        """Return the next command to write; None at the end."""
        while True:
            if self.fault is not None:
                return None
            if self._waiting:
                size, command = self._waiting.popleft()
                self._bytes -= size
                return command
            if self._is_finished:
                return None
            self._changed.clear()
            await self._changed.wait()
