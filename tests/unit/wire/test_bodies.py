"""JSON bodies: written in one form, read in several."""

from __future__ import annotations

import pytest

from gantry.wire import bodies
from gantry.wire.bodies import MalformedBodyError


def test_what_is_written_is_compact_sorted_and_ascii() -> None:
    assert bodies.dumps({"b": [1, True, None], "a": "\u4f60"}) == b'{"a":"\\u4f60","b":[1,true,null]}'


def test_integer_keys_are_written_in_quotes() -> None:
    assert bodies.dumps({10: 1, 9: 2}) == b'{"9":2,"10":1}'


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{0:"10.0.0.1:10911",1:"x"}', {"0": "10.0.0.1:10911", "1": "x"}),
        (b"{'a':'it''s'}", None),
        (b"{'a':\"it's\"}", {"a": "it's"}),
        (b'{"a":[1,2,],}', {"a": [1, 2]}),
        (b"{a:1,$b_c:2}", {"a": 1, "$b_c": 2}),
        (b"{-1:1,true:2}", {"-1": 1, "true": 2}),
        (b"{'\\u4f60\\ud83d\\ude00\\'\\n':1}", {"\u4f60\U0001f600'\n": 1}),
        (b"{0:-1.5e3,1:-0,2:null}", {"0": -1500.0, "1": 0, "2": None}),
        (b"{{'b':2,\"a\":1}:{}}", {'{"a":1,"b":2}': {}}),
        (b"{[1]:{}}", {"[1]": {}}),
        (b" { } ", {}),
        (b'{"a":"raw\x01"}', {"a": "raw\x01"}),
    ],
)
def test_fastjsons_dialect_is_read(body: bytes, value: object) -> None:
    if value is None:
        with pytest.raises(MalformedBodyError):
            bodies.loads(body)
    else:
        assert bodies.loads(body) == value


def test_integers_are_exact() -> None:
    assert bodies.loads(b"1699999999999999999") == 1699999999999999999
    assert bodies.loads(b"{0:1699999999999999999}") == {"0": 1699999999999999999}


@pytest.mark.parametrize(
    "body",
    [
        *[
            b"",
            b" ",
            b"{",
            b"}",
            b"[1",
            b"{,}",
            b"[,]",
            b'{"a"}',
            b'{"a":}',
            b"{a:b}",
            b'{"a":1}x',
            b"01",
            b"'",
            b'"\\x"',
        ],
        *[
            b"NaN",
            b"[Infinity]",
            b"1e999",
            b"{0:1e999}",
            b"9" * 101,
            b"{0:" + b"9" * 101 + b"}",
            b"\xff",
            b'"\xed\xa0\x80"',
        ],
        *[b'"\\ud800"', b"'\\uDC00'", b'{"\\ud800":1}', b"[" * 65 + b"]" * 65, b"{0:" * 65 + b"1" + b"}" * 65],
    ],
)
def test_what_is_neither_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedBodyError):
        bodies.loads(body)


def test_sixty_four_levels_are_allowed() -> None:
    assert bodies.loads(b"[" * 64 + b"]" * 64)
    assert bodies.loads(b"{0:" * 64 + b"1" + b"}" * 64)
    assert bodies.loads(b"[" + b"[]," * 999 + b"[]]") == [[]] * 1000


@pytest.mark.parametrize("opening", [b"[", b"{0:", b"{'a':", b"{["])
def test_a_thousand_levels_are_malformed_and_nothing_worse(opening: bytes) -> None:
    with pytest.raises(MalformedBodyError, match="deeper than 64"):
        bodies.loads(opening * 5_000)


def test_the_dialect_has_a_size_limit_and_the_standard_has_none() -> None:
    assert len(str(bodies.loads(b'"' + b"x" * 2_000_000 + b'"'))) == 2_000_000
    with pytest.raises(MalformedBodyError, match="2000002 characters"):
        bodies.loads(b"'" + b"x" * 2_000_000 + b"'")


def test_an_object_has_to_be_one() -> None:
    assert bodies.loads_object(b"{}") == {}
    with pytest.raises(MalformedBodyError, match="JSON list, expected an object"):
        bodies.loads_object(b"[]")
