"""The budget of unfinished frames, without sockets."""

from __future__ import annotations

from gantry.transport.readbuffer import ReadBuffer


class Peer:
    """Keeps what it says it keeps, until it gives way."""

    def __init__(self, buffer: ReadBuffer, host: str = "10.0.0.1") -> None:
        self.buffer = buffer
        self.peer = f"{host}:4711"
        self.last_active = 0.0
        self.is_held_up = False
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


def test_frames_that_nobody_goes_on_sending_make_room_for_a_larger_one() -> None:
    buffer = ReadBuffer(16, partial_bytes_max=1000)
    hogs = [Peer(buffer) for _ in range(10)]
    assert all(hog.keep(100) for hog in hogs)
    for nth, hog in enumerate(hogs):
        hog.last_active = 10.0 - nth
    honest = Peer(buffer)
    honest.last_active = 10.5
    assert honest.keep(300)
    assert [bool(hog.reason) for hog in hogs] == [False] * 7 + [True] * 3, "the longest silent ones"
    assert "nothing has come" in hogs[9].reason and buffer.partial_bytes == 1000
    assert honest.keep(800) and [bool(hog.reason) for hog in hogs] == [False] * 2 + [True] * 8
    for hog in hogs:
        hog.last_active = 10.5
    late = Peer(buffer)
    late.last_active = 10.6
    assert late.keep(100) and honest.reason, "nobody was silent: the one that keeps most"


def test_the_host_that_keeps_most_makes_room_for_another_whose_frame_is_larger() -> None:
    buffer = ReadBuffer(16, partial_bytes_max=1000)
    many = [Peer(buffer, "10.0.0.1") for _ in range(10)]
    assert all(one.keep(100) for one in many)
    honest = Peer(buffer, "10.0.0.2")
    assert honest.keep(300) and sum(bool(one.reason) for one in many) == 3
    assert not Peer(buffer, "10.0.0.1").keep(300) and not honest.reason


def test_who_is_not_read_from_is_not_silent() -> None:
    buffer = ReadBuffer(16, partial_bytes_max=1000)
    held_up, silent = Peer(buffer, "10.0.0.1"), Peer(buffer, "10.0.0.2")
    held_up.is_held_up = True
    assert held_up.keep(300) and silent.keep(300)
    honest = Peer(buffer, "10.0.0.3")
    honest.last_active = 10.0
    silent.last_active = 5.0
    assert honest.keep(700) and silent.reason and not held_up.reason
    assert not honest.keep(800) and not held_up.reason


class Counting(Peer):
    looks = 0

    @property
    def peer(self) -> str:
        Counting.looks += 1
        return self._peer

    @peer.setter
    def peer(self, peer: str) -> None:
        self._peer = peer


def test_many_that_give_way_are_looked_at_a_few_times_each() -> None:
    buffer = ReadBuffer(16, partial_bytes_max=1000)
    many = [Counting(buffer, f"10.0.0.{number % 4}") for number in range(1000)]
    assert all(one.keep(1) for one in many)
    Counting.looks = 0
    assert Peer(buffer, "10.0.1.1").keep(140) and sum(bool(one.reason) for one in many) == 140
    assert Counting.looks <= 1000 + 2 * 140


class Watched(Peer):
    """Counts how often it was looked at, for whatever reason."""

    looks = 0

    @property
    def last_active(self) -> float:
        Watched.looks += 1
        return self._last_active

    @last_active.setter
    def last_active(self, at: float) -> None:
        self._last_active = at


def test_one_who_asks_is_not_compared_with_all_that_keep_something() -> None:
    buffer = ReadBuffer(16, partial_bytes_max=20_000)
    many = [Watched(buffer, f"10.0.0.{number % 4}") for number in range(20_000)]
    assert all(one.keep(1) for one in many)
    asking = Peer(buffer, "10.0.1.1")
    assert asking.keep(1)
    Watched.looks = 0
    for nth in range(100):
        asking.last_active += 0.001
        assert asking.keep(2 + nth)
        assert not Peer(buffer, "10.0.0.1").keep(5_000), "the host that has most already"
    assert Watched.looks <= 100, "once for each connection that gave way"


def test_those_that_went_on_sending_are_found_to_have_done_so_in_short_searches() -> None:
    buffer = ReadBuffer(16, partial_bytes_max=20_000)
    many = [Watched(buffer) for _ in range(20_000)]
    assert all(one.keep(1) for one in many)
    for one in many:
        one.last_active = 100.0
    asking = Peer(buffer, "10.0.1.1")
    asking.last_active = 100.5
    Watched.looks = 0
    assert asking.keep(1) and Watched.looks <= 20_000 + 3_000, "the table was made once, then a thousand were looked at"
    Watched.looks = 0
    assert asking.keep(2) and Watched.looks <= 3_000


def test_the_order_is_right_again_after_a_refusal_and_when_there_was_room_meanwhile() -> None:
    buffer = ReadBuffer(16, partial_bytes_max=100)
    large, small, asking = Peer(buffer), Peer(buffer), Peer(buffer)
    assert large.keep(50) and small.keep(40) and asking.keep(10)
    assert not asking.keep(60) and buffer.partial_bytes == 100
    assert asking.keep(45) and large.reason and not small.reason, "not itself, which it was refused as"
    assert small.keep(0) and asking.keep(0) and buffer.partial_bytes == 0
    assert small.keep(70) and asking.keep(30) and large.keep(60) and small.reason and not asking.reason
