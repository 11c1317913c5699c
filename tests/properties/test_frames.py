"""Every frame decodes alike however its bytes come, and no bytes do anything but decode or break the protocol."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gantry.errors import RemoteProtocolError
from gantry.leaves import frames
from gantry.leaves.frames import Command
from testkit.feeding import (
    BROKEN,
    PULL_EXT,
    SEND_EXT,
    fed_by_byte,
    fed_whole,
    fed_with_tail,
    json_frame,
    long_names,
    pull_frame,
    raw_frame,
    send_frame,
    values,
)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
NUMBERS = st.integers(-(2**70), 2**70)
SCALARS = st.one_of(TEXTS, NUMBERS, st.booleans(), st.none(), st.floats(allow_nan=True), NUMBERS.map(str))
JSONS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8
)
I32 = st.integers(-(2**31), 2**31 - 1)
COMMANDS = st.builds(
    Command,
    st.integers(-(2**15), 2**15 - 1),
    language=st.integers(0, 13),
    version=st.integers(0, 2**15 - 1),
    opaque=I32,
    flag=I32,
    remark=st.none() | TEXTS.filter(bool),
    ext=st.dictionaries(TEXTS, TEXTS.filter(bool), max_size=5),
    body=st.binary(max_size=40),
    serialization=st.sampled_from([0, 1]),
)


@st.composite
def headers(draw: st.DrawFn) -> dict[str, object]:
    """Headers that are nearly right: a hot or any code, its fields with some replaced, some taken away, some added."""
    code = draw(st.sampled_from([10, 310, 320, 11, 361, 34, "310", None]) | JSONS)
    ext: dict[str, object] = dict(draw(st.sampled_from([SEND_EXT, PULL_EXT, long_names(SEND_EXT), {}])))
    names = st.sampled_from([*ext, "x"])
    ext.update(draw(st.dictionaries(names, SCALARS, max_size=3)))
    for name in draw(st.lists(names, max_size=1)):
        ext.pop(name, None)
    header: dict[str, object] = {
        "code": code,
        "extFields": ext,
        "flag": 0,
        "opaque": 5,
        "language": "GO",
        "version": 317,
    }
    header.update(draw(st.dictionaries(st.sampled_from([*header, "remark", "unknown"]), JSONS, max_size=2)))
    return header


FRAMES = st.one_of(
    COMMANDS.map(frames.encode),
    headers().map(lambda header: raw_frame(json.dumps(header).encode(), b"body")),
    headers().map(lambda header: raw_frame(json.dumps(header, ensure_ascii=False).encode("utf-8", "replace"))),
    st.binary(max_size=60).map(lambda header: raw_frame(header, b"x", 1)),
    st.sampled_from([send_frame(), send_frame(10), pull_frame(), json_frame(code=34)]),
)


def kind_of(frame: bytes) -> object:
    outcome = fed_whole(frame)
    assert not isinstance(outcome, str)
    return outcome[0][0]


@given(st.lists(FRAMES, max_size=3).map(b"".join), st.binary(max_size=20))
def test_the_way_in_which_bytes_come_does_not_matter(data: bytes, tail: bytes) -> None:
    whole = fed_whole(data)
    assert fed_by_byte(data) == whole
    assert fed_with_tail(data, tail) == whole


@given(st.binary(max_size=200))
@example(b"\x00\x00\x00\x04\x00\x00\x00\x00")
@example(b"\x7f\xff\xff\xff")
@example(b"\x00\x00\x00\x19\x01\x00\x00\x15" + b"\x00" * 21)
def test_any_bytes_decode_or_break_the_protocol(data: bytes) -> None:
    whole = fed_whole(data)
    assert fed_by_byte(data) == whole
    assert fed_with_tail(data, b"\xff" * 16) == whole


@given(FRAMES, st.data())
def test_damage_never_does_anything_else(frame: bytes, data: st.DataObject) -> None:
    damaged = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    whole = fed_whole(bytes(damaged))
    assert fed_by_byte(bytes(damaged)) == whole
    assert fed_with_tail(bytes(damaged), b"{") == whole


@given(FRAMES, st.data())
def test_a_cut_frame_waits_or_breaks_the_protocol(frame: bytes, data: st.DataObject) -> None:
    cut = frame[: data.draw(st.integers(0, len(frame) - 1))]
    assert fed_whole(cut) in ([], BROKEN)


@given(COMMANDS)
def test_what_is_encoded_reads_back(command: Command) -> None:
    data = frames.encode(command)
    if kind_of(data) == "Command":
        assert fed_whole(data) == [values(command)]


@given(st.binary(max_size=12))
def test_a_length_is_known_exactly_when_decode_would_take_it(data: bytes) -> None:
    try:
        length = frames.frame_length(data, 0, len(data))
    except RemoteProtocolError:
        assert fed_whole(data) == BROKEN
        return
    if length is None:
        assert len(data) < 4
    elif len(data) < 8:
        assert length == struct.unpack_from(">i", data)[0] + 4


@given(st.dictionaries(st.sampled_from("defghjl"), NUMBERS | I32, max_size=4))
def test_a_send_is_well_formed_exactly_when_its_numbers_fit(numbers: dict[str, int]) -> None:
    widths = {name: 63 if name == "g" else 31 for name in numbers}
    fit = all(-(2 ** widths[name]) <= number < 2 ** widths[name] for name, number in numbers.items())
    for spelled in (numbers, {name: str(number) for name, number in numbers.items()}):
        assert kind_of(send_frame(**spelled)) == ("Send" if fit else "Command")


@given(
    st.lists(st.builds(frames.Send, opaque=I32, rpc_flag=st.sampled_from([0, 2]), unique_key=st.binary(max_size=40))),
    TEXTS,
)
def test_replies_are_whole_frames_whatever_the_key(sends: list[frames.Send], region: str) -> None:
    for number, send in enumerate(sends):
        send.queue_offset = send.log_offset = number
    data = bytes(frames.encode_send_replies(sends, bytes(8), region))
    used, replies = frames.decode(data, 0, len(data))
    assert used == len(data)
    assert [reply.opaque for reply in replies] == [send.opaque for send in sends if not send.is_oneway]


@pytest.mark.parametrize("depth", [100, 10_000, 1_000_000])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_deep_nesting_breaks_the_protocol(depth: int, opening: str) -> None:
    assert fed_whole(raw_frame(b'{"code":1,"x":' + opening.encode() * depth)) == BROKEN
