"""The compiled frames do what the pure ones do, on what clients send and on what nobody should.

Either both decode the same requests, attribute by attribute, or both refuse in the same words.
"""

from __future__ import annotations

import json
import struct

from hypothesis import given
from hypothesis import strategies as st

from gantry.errors import LocalProtocolError
from gantry.leaves import COMPILED, requests
from gantry.leaves import frames as chosen
from gantry.leaves.headers import write_binary
from gantry.leaves.requests import Command
from testkit.compiled import fast, hostile, near, same_outcome
from testkit.compiled import pure as pure_leaf

compiled, pure = fast("frames"), pure_leaf("frames")

SEND = {"a": "g", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0"}
LONG_NAMES = [
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag",
]  # fmt: skip
SEND_LONG = dict(zip(LONG_NAMES, SEND.values(), strict=True))
PULL = {
    "consumerGroup": "g", "topic": "T", "queueId": "0", "queueOffset": "5", "maxMsgNums": "32", "sysFlag": "2",
    "commitOffset": "3", "suspendTimeoutMillis": "15000", "subVersion": "0",
    "subscription": "*", "expressionType": "TAG",
}  # fmt: skip
END = {
    "topic": "T", "producerGroup": "g", "tranStateTableOffset": "7", "commitLogOffset": "123456",
    "commitOrRollback": "8", "fromTransactionCheck": "false", "msgId": "7F00", "transactionId": "7F00",
}  # fmt: skip
OPTIONAL = {"i": "UNIQ_KEY\x01A\x02TAGS\x01t\x02", "j": "1", "k": "false", "l": "16", "m": "false"}

ODD_NUMBERS = ["", "0", "-1", "+7", "007", "2147483648", "-2147483649", "9223372036854775808", "1e3"]
odd_values = st.one_of(
    st.text(max_size=12),
    st.sampled_from([*ODD_NUMBERS, "TRUE", "True", "1", "null"]),
    st.integers(-(2**65), 2**65),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.integers(), max_size=2),
)

# By number, not by name: a strategy made again for each draw costs more than all draws from it.
odd_fields = st.lists(st.tuples(st.integers(0, 63), odd_values), max_size=2)
missing = st.lists(st.integers(0, 63), max_size=1)


def frame(header: bytes, body: bytes = b"", serialization: int = 0) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), serialization << 24 | len(header)) + header + body


def fields_of(request: object) -> dict[str, object]:
    """Every attribute, by the pure class of the same name."""
    names = getattr(requests, type(request).__name__).__slots__
    return {"class": type(request).__name__} | {name: getattr(request, name) for name in names}


def decoded(module: object, data: bytes) -> object:
    used, found = module.decode(data, 0, len(data))  # type: ignore[attr-defined]
    return used, [fields_of(request) for request in found]


def check(data: bytes) -> None:
    for one in near(data):
        same_outcome(lambda one=one: decoded(pure, one), lambda one=one: decoded(compiled, one))


@st.composite
def headers(draw: st.DrawFn) -> dict[str, object]:
    """A header near what clients send: some field changed, missing, or of another kind."""
    code = draw(st.sampled_from([10, 310, 320, 11, 361, 34, 37, "310", -1, 2**31]))
    base: dict[str, object] = dict(draw(st.sampled_from([SEND, SEND_LONG, PULL, END])))
    base |= draw(st.sampled_from([{}, OPTIONAL]))
    for number, value in draw(odd_fields):
        names = [*base, "n", "x"]
        base[names[number % len(names)]] = value
    for number in draw(missing):
        del base[list(base)[number % len(base)]]
    header: dict[str, object] = {"code": code, "extFields": base, "flag": draw(st.sampled_from([0, 1, 2, 3]))}
    header |= {"language": draw(st.sampled_from(["JAVA", "GO", "KLINGON", 3]))}
    header |= {"opaque": draw(st.integers(-(2**31), 2**31))}
    header |= draw(st.sampled_from([{}, {"remark": ""}, {"remark": None}, {"remark": 5}, {"extra": {"a": [1]}}]))
    header |= {"serializeTypeCurrentRPC": "JSON", "version": draw(st.sampled_from([401, "317", None]))}
    return header


@hostile
@given(headers(), st.booleans(), st.booleans(), st.sampled_from([(",", ":"), (", ", ": ")]), st.binary(max_size=20))
def test_json_headers_near_what_clients_send(
    header: dict[str, object], ascii_only: bool, sort: bool, separators: tuple[str, str], body: bytes
) -> None:
    text = json.dumps(header, ensure_ascii=ascii_only, sort_keys=sort, separators=separators)
    try:
        data = text.encode()
    except UnicodeEncodeError:
        data = text.encode("utf-8", "surrogatepass")
    check(frame(data, body))


@hostile
@given(headers(), st.data())
def test_json_headers_with_bytes_changed(header: dict[str, object], data: st.DataObject) -> None:
    whole = bytearray(frame(json.dumps(header, separators=(",", ":")).encode(), b"body"))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.sampled_from([0, 1, 34, 44, 58, 92, 117, 123, 125, 128, 255, whole[at] ^ 1]))
    check(bytes(whole))


@hostile
@given(
    st.sampled_from([SEND, SEND_LONG, PULL, END]),
    st.dictionaries(st.text(max_size=8), st.text(max_size=20), max_size=3),
    st.data(),
)
def test_binary_headers_and_bytes_changed(base: dict[str, str], more: dict[str, str], data: st.DataObject) -> None:
    code = data.draw(st.sampled_from([10, 310, 320, 11, 34, 37]))
    try:
        header = write_binary(Command(code, ext=base | more, opaque=data.draw(st.integers(-(2**31), 2**31 - 1))))
    except LocalProtocolError:
        return
    whole = bytearray(frame(header, b"body", 1))
    check(bytes(whole))
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    check(bytes(whole))


PIECES = ["北京", "ü", "\U0001f600", "\x7f"]
PIECES += ["\\u00e9", "\\u5317", "\\ud83d\\ude00", "\\uD83D\\uDE00", "\\ud83d", "\\ude00"]
PIECES += ["\\ud83d\\u0041", "\\ud83dx", "\\u12", "\\u00g0", "\\n", "\\u0001", "\\u0080", "\\u07ff"]
PIECES += ["\\u0800", "\\uffff"]
RAW = ["80", "c080", "c1bf", "c2", "c280", "e09fbf", "e0a080", "ed9fbf", "eda080", "efbfbf", "f08fbfbf", "f0908080"]
RAW += ["f48fbfbf", "f4908080", "f5808080", "ff", "e58c", "f09f98"]
pieces = st.lists(
    st.one_of(st.sampled_from(PIECES).map(str.encode), st.sampled_from(RAW).map(bytes.fromhex)), min_size=1, max_size=5
)


@hostile
@given(pieces, st.sampled_from(["i", "a", "b", "x", "remark", "properties"]), st.sampled_from([310, 10, 34, 36]))
def test_text_beyond_ascii_in_every_spelling(found: list[bytes], name: str, code: int) -> None:
    value = b"".join(found)
    known = dict(SEND_LONG if code == 10 else SEND) | {name: "HERE"}
    fields = json.dumps(known, separators=(",", ":")).encode().replace(b"HERE", value)
    check(frame(b'{"code":%d,"language":"JAVA","extFields":%b,"flag":0,"opaque":1,"version":1}' % (code, fields)))
    check(frame(b'{"code":%d,"extFields":{"%b":"x"},"flag":0,"remark":"%b"}' % (code, value, value)))


@hostile
@given(pieces, st.sampled_from(["i", "a", "x"]))
def test_binary_text_beyond_ascii(found: list[bytes], name: str) -> None:
    header = write_binary(Command(310, ext=SEND | {name: "I" * len(b"".join(found))}, opaque=7))
    check(frame(header.replace(b"I" * len(b"".join(found)), b"".join(found)), b"body", 1))


@hostile
@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    check(data)
    check(frame(data))
    check(frame(data, serialization=1))


@hostile
@given(st.lists(headers(), max_size=3), st.integers(0, 200))
def test_several_frames_and_a_part_of_one(found: list[dict[str, object]], cut: int) -> None:
    data = b"".join(frame(json.dumps(header, separators=(",", ":")).encode(), b"b") for header in found)
    check(data[: len(data) - min(cut, len(data))])


@hostile
@given(
    st.lists(
        st.tuples(
            st.integers(-(2**31), 2**31 - 1),
            st.integers(0, 2**31 - 1),
            st.integers(0, 2**61),
            st.binary(max_size=40),
            st.booleans(),
        ),
        max_size=5,
    ),
    st.sampled_from([b"\x7f\0\0\1\0\0\x2a\x9f", bytes(range(20))]),
    st.sampled_from(["DefaultRegion", 'a"b', "北京"]),
)
def test_replies(values: list[tuple[int, int, int, bytes, bool]], host: bytes, region: str) -> None:
    replies = []
    for module in (pure, compiled):
        sends = []
        for opaque, queue_id, offset, key, oneway in values:
            send = module.Send(310, opaque=opaque, rpc_flag=2 if oneway else 0, queue_id=queue_id, unique_key=key)
            send.queue_offset, send.log_offset = offset, offset * 2
            sends.append(send)
        replies.append(bytes(module.encode_send_replies(sends, host, region)))
        handles = [b"" if number % 3 == 0 else b"djEg_-=" * number for number in range(len(sends))]
        replies.append(bytes(module.encode_send_replies(sends, host, region, handles)))
        replies.append(module.encode_joint_reply(7, sends, host, region) if sends else b"")
    assert replies[:3] == replies[3:]


def test_the_leaves_in_use_are_the_compiled_ones_unless_told_otherwise() -> None:
    assert (chosen.Send is compiled.Send) is COMPILED
