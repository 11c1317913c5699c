"""The budget of unfinished frames, without sockets."""

from __future__ import annotations

from gantry.transport.readbuffer import ReadBuffer


class Peer:
    """Keeps what it says it keeps, until it gives way."""

    def __init__(self, buffer: ReadBuffer) -> None:
        self.buffer = buffer
        self.reason = ""

    def keep(self, count: int) -> bool:
        return self.buffer.keep(self, count)

    def give_way(self, reason: str) -> None:
        self.reason = reason
        self.buffer.keep(self, 0)


def test_what_is_kept_is_counted_and_forgotten() -> None:
    buffer = ReadBuffer(16, partial_bytes_max=100)
    one, other = Peer(buffer), Peer(buffer)
    assert one.keep(60) and other.keep(40) and buffer.partial_bytes == 100
    assert one.keep(10) and buffer.partial_bytes == 50
    assert one.keep(0) and other.keep(0) and other.keep(0) and buffer.partial_bytes == 0


def test_sixteen_peers_with_unfinished_frames_make_room_for_a_small_one() -> None:
    buffer = ReadBuffer(16, partial_bytes_max=1600)
    hogs = [Peer(buffer) for _ in range(16)]
    assert all(hog.keep(100) for hog in hogs)
    honest = Peer(buffer)
    assert honest.keep(5) and not honest.reason
    assert [bool(hog.reason) for hog in hogs] == [True] + [False] * 15, "of equals the oldest"
    assert buffer.partial_bytes == 1505


def test_nobody_gives_way_to_one_who_would_keep_more() -> None:
    buffer = ReadBuffer(16, partial_bytes_max=100)
    small, middle, large, asking = (Peer(buffer) for _ in range(4))
    assert small.keep(10) and middle.keep(40) and large.keep(50)
    assert not asking.keep(60) and not large.reason, "it would keep most itself"
    assert asking.keep(40) and large.reason and not middle.reason
    assert asking.keep(50) and not middle.reason and buffer.partial_bytes == 100
    assert not middle.keep(60) and not asking.reason
    assert middle.keep(40) and buffer.partial_bytes == 100
