"""Requests that have not come whole, from the bytes of a connection alone."""

from __future__ import annotations

import pytest

from gantry.proxy.requestbytes import RequestBytes

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, PING = 0, 1, 3, 6
END_STREAM, PADDED = 1, 8
BEGUN = 256  # what a stream counts for besides its bytes


def frame(kind: int, stream: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def message(length: int) -> bytes:
    return b"\0" + length.to_bytes(4, "big") + bytes(length)


def split(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def counted(pieces: list[bytes]) -> RequestBytes:
    found = RequestBytes()
    for piece in pieces:
        found.look_at(piece)
    return found


@pytest.mark.parametrize("size", [1, 2, 7, 64, 100_000])
def test_what_is_not_whole_counts_however_the_bytes_are_cut(size: int) -> None:
    whole = PREFACE + frame(HEADERS, 1, bytes(40)) + frame(DATA, 1, message(1000), END_STREAM)
    whole += frame(PING, 0, bytes(8))
    begun = frame(HEADERS, 3, bytes(40)) + frame(DATA, 3, message(1000)[:300]) + frame(DATA, 5, message(20)[:3])
    assert counted(split(whole, size)).unfinished == 0
    assert counted(split(whole + begun, size)).unfinished == 295 + 2 * BEGUN
    rest = frame(DATA, 3, message(1000)[300:], END_STREAM) + frame(RST_STREAM, 5, bytes(4))
    assert counted(split(whole + begun + rest, size)).unfinished == 0


@pytest.mark.parametrize("size", [1, 5, 100_000])
def test_messages_of_a_stream_that_stays_open_count_until_each_is_whole(size: int) -> None:
    found = counted(split(PREFACE, size))
    for _ in range(3):
        two = message(100) + message(0) + message(50)
        for piece in split(frame(DATA, 7, two[:80]) + frame(DATA, 7, two[80:120]), size):
            found.look_at(piece)
        assert found.unfinished == 5 + BEGUN
        found.look_at(frame(DATA, 7, two[120:]))
        assert found.unfinished == 0


def test_a_stream_with_padding_counts_until_it_ends() -> None:
    found = counted([PREFACE + frame(DATA, 1, b"\4" + message(90) + bytes(4), PADDED)])
    assert found.unfinished == 100 + BEGUN
    found.look_at(frame(DATA, 1, b"", END_STREAM))
    assert found.unfinished == 0
