from __future__ import annotations

from typing import Any

import pytest

from gantry.metadata import heartbeats
from gantry.metadata.heartbeats import Heartbeats
from gantry.wire.bodies import MalformedBodyError
from gantry.wire.heartbeat import ConsumerData, Heartbeat, write
from testkit.fake_connection import FakeConnection


def _body(*groups: str) -> bytes:
    return write(Heartbeat("client", consumers=tuple(ConsumerData(group) for group in groups)))


def test_the_same_words_are_read_once_and_others_again() -> None:
    beats, connection = Heartbeats(), _connection()
    first = beats.read(connection, _body("G"))
    assert beats.read(connection, _body("G")) is first
    assert [one.group for one in beats.read(connection, _body("H")).consumers] == ["H"]
    again = beats.read(connection, _body("G"))
    assert again == first and again is not first


def test_what_one_connection_said_says_nothing_about_another() -> None:
    beats = Heartbeats()
    assert beats.read(_connection(), _body("G")) is not beats.read(_connection(), _body("G"))


def test_a_closed_connection_is_forgotten() -> None:
    beats, connection = Heartbeats(), _connection()
    for groups in (("G",), ("H",)):
        beats.read(connection, _body(*groups))
    assert len(beats) == 1 and len(connection.closed_listeners) == 1
    connection.close("gone")
    assert len(beats) == 0
    beats.read(connection, _body("G"))
    assert len(beats) == 0


def test_long_words_are_not_kept() -> None:
    beats, connection = Heartbeats(), _connection()
    body = _body(*[f"group-{number:04d}" for number in range(200)])
    assert len(beats.read(connection, body).consumers) == 200
    assert len(beats) == 0


def test_nonsense_is_refused_each_time() -> None:
    beats, connection = Heartbeats(), _connection()
    for _ in range(2):
        with pytest.raises(MalformedBodyError):
            beats.read(connection, b"{")
    assert len(beats) == 0


def _connection() -> Any:
    return FakeConnection()


def test_what_is_kept_of_all_connections_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "_ALL_BYTES_MAX", 2 * len(_body("G")))
    beats, connections = Heartbeats(), [_connection() for _ in range(3)]
    for connection in (*connections, *connections):
        assert beats.read(connection, _body("G")).consumers[0].group == "G"
    assert len(beats) == 2
    connections[0].close("gone")
    beats.read(connections[2], _body("G"))
    assert len(beats) == 2
