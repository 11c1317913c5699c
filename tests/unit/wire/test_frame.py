"""The client's reading half."""

from __future__ import annotations

import pytest

from gantry.errors import RemoteProtocolError
from gantry.leaves import frames
from gantry.leaves.frames import Command
from gantry.wire.frame import FrameReader
from testkit.feeding import pull_frame, send_frame


def test_commands_come_out_as_their_last_byte_comes_in() -> None:
    reader = FrameReader()
    data = frames.encode(Command(0, opaque=1, flag=1, body=b"one")) + frames.encode(Command(40, opaque=2))
    found = [(number, command) for number in range(len(data)) for command in reader.feed(data[number : number + 1])]
    assert [command.opaque for _, command in found] == [1, 2]
    assert found[1][0] == len(data) - 1
    assert reader.pending_bytes == 0


def test_what_is_unfinished_is_kept() -> None:
    reader = FrameReader()
    data = frames.encode(Command(0, flag=1))
    assert reader.feed(data[:-1]) == []
    assert reader.pending_bytes == len(data) - 1


@pytest.mark.parametrize(
    "data", [send_frame(), pull_frame(), b"\xff\xff\xff\xff", frames.encode(Command(0)) + b"\0\0\0\0"]
)
def test_what_no_server_sends_breaks_the_protocol(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        FrameReader().feed(data)


def test_an_answer_to_a_pull_is_a_command_like_any_other() -> None:
    (command,) = FrameReader().feed(frames.encode(Command(11, flag=1)))
    assert command.code == 11
