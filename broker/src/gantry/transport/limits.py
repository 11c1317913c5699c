"""Limits of one connection, and of the server that accepts it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one connection: bytes, requests and seconds."""

    idle_s: float = 120.0  # RocketMQ's serverChannelMaxIdleTimeSeconds
    output_bytes_high: int = 1 << 20  # above it nothing more is read from this peer
    output_bytes_max: int = 64 << 20  # above it the connection is closed: the peer does not read
    pending_max: int = 4096  # our own requests without an answer
    linger_s: float = 5.0  # what is already written may still drain this long after close()
    connections_max: int = 20_000  # of one server, over all its listeners
