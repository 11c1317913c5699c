"""One pass and one flush of the compiled sockets, without a server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gantry.leaves import frames
from gantry.wire.command import Request
from testkit.compiled import fast


class Told:
    """The owner of a poll and the protocol of its channels."""

    has_unfinished = False

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.lost: list[object] = []
        self.interrupts = False

    def lost_soon(self, channel: object, error: Exception | None) -> None:
        self.lost.append(channel)
        if self.interrupts:
            raise KeyboardInterrupt

    def flush_soon(self) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def received(self, requests: list[Request], *_: object) -> None:
        self.requests += requests


@contextmanager
def polled(told: Told, count: int) -> Iterator[tuple[Any, list[Any], list[socket.socket]]]:
    poll_type = fast("sockets").Poll
    pairs = [socket.socketpair() for _ in range(count)]
    poll = poll_type(told)
    for pair in pairs:
        for one in pair:
            one.setblocking(False)
    channels = [poll.add(ours.fileno(), told, {}) for ours, _ in pairs]
    try:
        yield poll, channels, [theirs for _, theirs in pairs]
    finally:
        poll.close()
        for pair in pairs:
            for one in pair:
                one.close()


def test_what_came_before_the_peer_was_gone_is_handed_over_though_a_write_fails() -> None:
    told = Told()
    with polled(told, 1) as (poll, (channel,), (peer,)):
        channel.write(bytes(8 << 20))  # more than the system takes
        poll.flush()
        assert channel.get_write_buffer_size() > 0
        peer.send(b"".join([frames.encode(frames.Command(28, opaque=number)) for number in (1, 2)]))
        peer.close()
        poll.receive(bytearray(1 << 16), 0.0)
        assert [request.opaque for request in told.requests] == [1, 2]
        assert told.lost == [channel]


def test_what_was_sent_is_accounted_for_all_before_one_of_them_is_told() -> None:
    told = Told()
    with polled(told, 2) as (poll, (first, second), (_, peer)):
        first.write(b"first")
        second.write(b"second")
        first.close()
        told.interrupts = True
        with pytest.raises(KeyboardInterrupt):
            poll.flush()
        assert second.get_write_buffer_size() == 0
        second.write(b".")
        poll.flush()
        assert peer.recv(99) == b"second."
