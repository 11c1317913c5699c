"""Frames: cut, decoded, encoded; which outcome a frame has."""

from __future__ import annotations

import struct

import pytest

from gantry.errors import LocalProtocolError, RemoteProtocolError
from gantry.leaves import frames
from gantry.leaves.frames import FRAME_BYTES_MAX, Command
from testkit.feeding import BROKEN, SEND_EXT, fed_whole, json_frame, pull_frame, raw_frame, send_frame, values

STORE_HOST = bytes([10, 0, 0, 1, 0, 0, 0x2A, 0x9F])


def decoded(data: bytes) -> list[Command | frames.Send | frames.Pull]:
    used, requests = frames.decode(data, 0, len(data))
    assert used == len(data)
    return requests


def test_hot_requests_come_typed_and_others_as_commands() -> None:
    data = send_frame() + json_frame(code=34, extFields={}) + pull_frame(361) + send_frame(10) + send_frame(320)
    assert [type(request) for request in decoded(data)] == [frames.Send, Command, frames.Pull, frames.Send, frames.Send]


@pytest.mark.parametrize(
    "data", [send_frame(e=None), send_frame(10, g="x"), pull_frame(queueId="2147483648"), send_frame(d="")]
)
def test_an_ill_formed_hot_request_is_a_command_with_all_it_said(data: bytes) -> None:
    (command,) = decoded(data)
    assert isinstance(command, Command)
    assert command.code in (10, 11, 310)


def test_a_response_is_a_command_whatever_its_code() -> None:
    (command,) = decoded(json_frame(code=11, flag=1, opaque=4, remark="no"))
    assert isinstance(command, Command)
    assert (command.is_response, command.is_oneway, command.remark) == (True, False, "no")


def test_only_requests_with_a_hot_code_are_typed() -> None:
    for code, flag in ((310, 1), (34, 0)):
        (command,) = decoded(json_frame(code=code, flag=flag, extFields=SEND_EXT))
        assert isinstance(command, Command)


def test_a_send_may_be_one_way() -> None:
    (send,) = decoded(json_frame(code=310, flag=2, extFields=dict.fromkeys("abcdefgh", "1")))
    assert isinstance(send, frames.Send)
    assert send.is_oneway


def test_numbers_and_booleans_of_cpp_clients_are_understood() -> None:
    (send,) = decoded(send_frame(d=4, e=-1, g=1700000000000, m=True, k="0"))
    assert isinstance(send, frames.Send)
    assert (send.default_queues, send.queue_id, send.batch, send.unit_mode) == (4, -1, True, False)


def test_a_header_without_fields_is_a_command_without_fields() -> None:
    for data in (json_frame(code=34), json_frame(code=34, extFields=None)):
        (command,) = decoded(data)
        assert isinstance(command, Command)
        assert command.ext == {}


def test_an_unfinished_frame_stays() -> None:
    whole, part = send_frame(), send_frame()[:-1]
    used, requests = frames.decode(whole + part, 0, len(whole + part))
    assert (used, len(requests)) == (len(whole), 1)
    assert frames.decode(part[:3], 0, 3) == (0, [])


def test_the_body_is_a_copy_of_its_own() -> None:
    buffer = bytearray(send_frame(body=b"one"))
    _, (send,) = frames.decode(buffer, 0, len(buffer))
    assert isinstance(send, frames.Send)
    buffer[-3:] = b"two"
    buffer += b"grows"
    assert send.body == b"one"


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", 3),
        struct.pack(">i", -1),
        struct.pack(">i", FRAME_BYTES_MAX - 3),
        struct.pack(">iI", FRAME_BYTES_MAX - 3, 0),
        struct.pack(">iI", 10, 7),
        struct.pack(">iI", 10, 2 << 24),
        struct.pack(">iI", 10, 0xFF000000),
        struct.pack(">iI", 2**31 - 1, 0),
        raw_frame(b""),
        raw_frame(b'{"code":"\xff"}'),
        raw_frame(b"", serialization=1),
    ],
)
def test_a_frame_that_cannot_be_read_breaks_the_protocol(data: bytes) -> None:
    assert fed_whole(data) == BROKEN
    assert fed_whole(send_frame() + data) == BROKEN


def test_a_frame_breaks_the_protocol_before_it_is_whole() -> None:
    with pytest.raises(RemoteProtocolError, match="header of 7 bytes, 6 left"):
        frames.frame_length(struct.pack(">iI", 10, 7), 0, 8)
    with pytest.raises(RemoteProtocolError, match=r"serialization 2, known are 0 \(JSON\)"):
        frames.frame_length(struct.pack(">iI", 10, 2 << 24), 0, 8)
    with pytest.raises(RemoteProtocolError, match="16777212"):
        frames.frame_length(struct.pack(">i", FRAME_BYTES_MAX - 3), 0, 4)


def test_the_longest_frame_is_allowed() -> None:
    assert frames.frame_length(struct.pack(">i", FRAME_BYTES_MAX - 4), 0, 4) == FRAME_BYTES_MAX
    assert frames.frame_length(struct.pack(">iI", 4, 0), 0, 8) == 8


def test_a_length_is_not_known_before_four_bytes() -> None:
    assert frames.frame_length(b"abc\0\0\0\0\x08", 3, 6) is None
    assert frames.frame_length(b"abc\0\0\0\x08", 3, 7) == 12


@pytest.mark.parametrize("serialization", [0, 1])
def test_what_is_encoded_reads_back(serialization: int) -> None:
    command = Command(
        34,
        opaque=-5,
        remark="\u4f60",
        ext={"a": "\x01\x02", "b": "2"},
        body=b"\0\xff",
        flag=2,
        serialization=serialization,
    )
    assert values(decoded(frames.encode(command))[0]) == values(command)


def test_a_head_and_what_follows_it_are_a_frame() -> None:
    command = Command(0, flag=1, ext={"a": "1"})
    (back,) = decoded(frames.encode_head(command, 5) + b"hello")
    assert isinstance(back, Command)
    assert back.body == b"hello"


def test_a_frame_that_nobody_would_take_is_not_made() -> None:
    with pytest.raises(LocalProtocolError, match="16777216 are allowed"):
        frames.encode_head(Command(0), FRAME_BYTES_MAX)
    with pytest.raises(LocalProtocolError):
        frames.encode(Command(0, remark="x" * (FRAME_BYTES_MAX + 1)))


def test_replies_pair_with_their_sends_and_one_way_sends_have_none() -> None:
    sends = [frames.Send(310, opaque=number, rpc_flag=2 if number == 1 else 0, queue_id=number) for number in range(3)]
    for number, send in enumerate(sends):
        send.queue_offset, send.log_offset, send.unique_key = 10 + number, 2**40 + number, b"U%d" % number
    replies = decoded(bytes(frames.encode_send_replies(sends, STORE_HOST, "here")))
    assert [reply.opaque for reply in replies] == [0, 2]
    assert all(isinstance(reply, Command) and reply.is_response and reply.code == 0 for reply in replies)
    last = replies[1]
    assert isinstance(last, Command)
    assert last.ext == {
        "MSG_REGION": "here",
        "TRACE_ON": "true",
        "msgId": "0A00000100002A9F0000010000000002",
        "queueId": "2",
        "queueOffset": "12",
        "transactionId": "U2",
    }


def test_messages_of_a_batch_are_answered_together_with_the_place_of_the_first() -> None:
    sends = [frames.Send(320, rpc_flag=0, queue_id=4, unique_key=b"U%d" % number) for number in range(3)]
    for number, send in enumerate(sends):
        send.queue_offset, send.log_offset = 10 + number, 2**40 + number
    (reply,) = decoded(frames.encode_joint_reply(-7, sends, STORE_HOST, "here"))
    assert isinstance(reply, Command)
    assert (reply.code, reply.opaque, reply.is_response) == (0, -7, True)
    assert reply.ext == {
        "MSG_REGION": "here",
        "TRACE_ON": "true",
        "msgId": ",".join([f"0A00000100002A9F000001000000000{number}" for number in range(3)]),
        "queueId": "4",
        "queueOffset": "10",
        "transactionId": "U0,U1,U2",
    }


def test_a_hostile_unique_key_cannot_break_out_of_its_reply() -> None:
    send = frames.Send(310, rpc_flag=0, unique_key=b'","code":1,"x":"\\\xff\n')
    send.queue_offset = send.log_offset = 0
    for encoded in (
        bytes(frames.encode_send_replies([send], STORE_HOST, 'r"')),
        frames.encode_joint_reply(0, [send], STORE_HOST, 'r"'),
    ):
        (reply,) = decoded(encoded)
        assert isinstance(reply, Command)
        assert (reply.code, reply.ext["transactionId"]) == (0, '","code":1,"x":"\\\ufffd\n')


def test_requests_show_what_they_are_but_no_body() -> None:
    shown = repr(decoded(send_frame() + pull_frame() + json_frame(b"secret", code=34)))
    assert "one espresso" not in shown
    assert "secret" not in shown
    assert "topic='orders'" in shown
