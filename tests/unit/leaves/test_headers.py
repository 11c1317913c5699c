"""Headers in both serializations: what is accepted, what is not, and what is written."""

from __future__ import annotations

import json
import struct

import pytest

from gantry.errors import LocalProtocolError, RemoteProtocolError
from gantry.leaves import headers
from gantry.leaves.frames import Command


def ext_of(text: str) -> dict[str, str]:
    return headers.read_json(text)[6]


def test_what_is_missing_or_null_has_its_default() -> None:
    expected: headers.Parts = (5, 7, 0, 0, 0, None, {})
    assert headers.read_json('{"code":5}') == expected
    nulls = '{"code":5,"flag":null,"opaque":null,"version":null,"language":null,"remark":null,"extFields":null}'
    assert headers.read_json(nulls) == expected


def test_numbers_and_their_text_are_the_same() -> None:
    assert headers.read_json('{"code":"310","opaque":-7,"version":"401","flag":"+2"}')[:5] == (310, 7, 401, -7, 2)


def test_every_scalar_field_becomes_its_text() -> None:
    text = '{"code":1,"extFields":{"n":-0,"f":1.50,"e":1E3,"t":true,"x":false,"s":"s","z":null}}'
    assert ext_of(text) == {"n": "-0", "f": "1.50", "e": "1E3", "t": "true", "x": "false", "s": "s"}


def test_a_number_of_any_length_keeps_its_digits() -> None:
    digits = "9" * 10_000
    assert ext_of('{"code":1,"extFields":{"n":' + digits + "}}") == {"n": digits}


def test_the_later_of_two_equal_keys_counts() -> None:
    assert headers.read_json('{"code":1,"code":2,"extFields":{"a":"x","a":"y"}}')[6] == {"a": "y"}
    assert headers.read_json('{"code":1,"code":2}')[0] == 2


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ('"GO"', 9),
        ('"JAVA"', 0),
        ("9", 9),
        ('"13"', 13),
        ("14", 7),
        ("-1", 7),
        ('"KLINGON"', 7),
        ("true", 7),
        ("[]", 7),
    ],
)
def test_a_language_is_a_name_or_its_number(value: str, number: int) -> None:
    assert headers.read_json('{"code":1,"language":' + value + "}")[1] == number


def test_raw_control_characters_are_accepted() -> None:
    assert ext_of('{"code":1,"extFields":{"i":"TAGS\x01paid\x02"}}') == {"i": "TAGS\x01paid\x02"}


def test_a_pair_of_escaped_surrogates_is_one_character() -> None:
    assert ext_of('{"code":1,"extFields":{"i":"\\ud83d\\ude00"}}') == {"i": "\U0001f600"}


def test_a_remark_may_be_any_scalar() -> None:
    assert headers.read_json('{"code":1,"remark":5}')[5] == "5"
    assert headers.read_json('{"code":1,"remark":true}')[5] == "true"


def test_unknown_keys_may_hold_anything_sixteen_levels_deep() -> None:
    assert headers.read_json('{"code":1,"x":' + "[" * 15 + "]" * 15 + "}")[0] == 1
    with pytest.raises(RemoteProtocolError, match="deeper than 16"):
        headers.read_json('{"code":1,"x":' + "[" * 16 + "]" * 16 + "}")


@pytest.mark.parametrize(
    "text",
    [
        *["", "5", "[]", "null", '"x"', "{", "{}", '{"code":1}}', '{"code":1,}', "{'code':1}", "{code:1}"],
        *['{"code":null}', '{"code":true}', '{"code":1.0}', '{"code":1e1}', '{"code":2147483648}', '{"code":"x"}'],
        *['{"code":01}', '{"code":" 1"}', '{"code":{}}', '{"code":1,"opaque":[]}', '{"code":1,"flag":9999999999}'],
        *['{"code":1,"version":false}', '{"code":1,"remark":{}}', '{"code":1,"remark":[1]}'],
        *['{"code":1,"extFields":[]}', '{"code":1,"extFields":"x"}', '{"code":1,"extFields":5}'],
        *['{"code":1,"extFields":{"a":{}}}', '{"code":1,"extFields":{"a":[]}}'],
        *['{"code":NaN}', '{"code":1,"x":Infinity}', '{"code":1,"extFields":{"a":-Infinity}}'],
        *['{"code":1,"x":"\\ud800"}', '{"code":1,"\\uDC00":1}', '{"code":1,"extFields":{"a":"\\ud83dx"}}'],
        *['{"code":1,"x":"\\x"}', '{"code":1,"x":"\\u12"}', '\ufeff{"code":1}'],
        "[" * 100_000,
        '{"code":1,"x":' + "[" * 5_000 + "]" * 5_000 + "}",
    ],
)
def test_what_is_no_header_breaks_the_protocol(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        headers.read_json(text)


def test_what_is_written_is_sorted_compact_ascii_and_has_fields() -> None:
    command = Command(5, opaque=9, remark='say "\u4f60"', ext={"b": "2", "a": "\x01"}, flag=1)
    written = headers.write_json(command)
    assert written == (
        b'{"code":5,"extFields":{"a":"\\u0001","b":"2"},"flag":1,"language":"PYTHON","opaque":9,'
        b'"remark":"say \\"\\u4f60\\"","serializeTypeCurrentRPC":"JSON","version":479}'
    )
    assert json.loads(headers.write_json(Command(5)))["extFields"] == {}


def test_a_language_nobody_has_is_written_as_other() -> None:
    assert b'"language":"OTHER"' in headers.write_json(Command(5, language=99))


def binary(code: int = 5, language: int = 3, remark: bytes = b"", fields: bytes = b"") -> bytes:
    return (
        struct.pack(">hbhii", code, language, 401, 7, 1)
        + struct.pack(">i", len(remark))
        + remark
        + struct.pack(">i", len(fields))
        + fields
    )


def field(name: bytes, value: bytes) -> bytes:
    return struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value


def read(data: bytes) -> headers.Parts:
    padded = b"\x7f" * 9 + data + b"\x7f" * 9
    return headers.read_binary(memoryview(padded), 9, 9 + len(data))


def test_a_binary_header_reads_into_the_same_parts() -> None:
    data = binary(remark=b"no", fields=field(b"topic", "\u4f60".encode()) + field(b"a", b"1"))
    assert read(data) == (5, 3, 401, 7, 1, "no", {"topic": "\u4f60", "a": "1"})


def test_an_empty_binary_value_did_not_come() -> None:
    assert read(binary(fields=field(b"a", b"") + field(b"b", b"1")))[5:] == (None, {"b": "1"})


def test_a_binary_language_nobody_knows_is_other() -> None:
    assert read(binary(language=14))[1] == 7
    assert read(binary(language=-1))[1] == 7


@pytest.mark.parametrize(
    "data",
    [
        b"",
        binary()[:-1],
        binary() + b"x",
        binary(remark=b"\xff"),
        binary(fields=b"\0"),
        binary(fields=field(b"a", b"b")[:-1]),
        binary(fields=field(b"a", b"b") + b"\0"),
        binary(fields=field(b"\xff", b"b")),
        binary(fields=field(b"a", b"\xff")),
        binary(fields=struct.pack(">h", -1) + b"\0\0\0\0"),
        binary(fields=struct.pack(">h", 1) + b"a" + struct.pack(">i", -1)),
        binary(fields=struct.pack(">h", 1) + b"a" + struct.pack(">i", 2**31 - 1)),
        binary(fields=struct.pack(">h", 32767) + b"a"),
        struct.pack(">hbhiiii", 5, 3, 401, 7, 1, -1, 0),
        struct.pack(">hbhiiii", 5, 3, 401, 7, 1, 2**31 - 1, 0),
        struct.pack(">hbhiiii", 5, 3, 401, 7, 1, 0, -1),
    ],
)
def test_what_is_no_binary_header_breaks_the_protocol(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read(data)


def test_a_binary_header_reads_back_as_written() -> None:
    command = Command(5, opaque=-3, remark="no", ext={"b": "\u4f60", "a": "1"}, flag=1)
    assert read(headers.write_binary(command)) == (5, 3, 479, -3, 1, "no", {"a": "1", "b": "\u4f60"})


def test_a_pop_code_does_not_fit_a_binary_header() -> None:
    with pytest.raises(LocalProtocolError, match="200050"):
        headers.write_binary(Command(200050))
    with pytest.raises(LocalProtocolError):
        headers.write_binary(Command(5, ext={"a" * 40_000: "b"}))
