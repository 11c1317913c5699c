"""JSON bodies, written strictly and read tolerantly.

`dumps` writes compact JSON with sorted keys in ASCII: the one form that Java (old and new), C++ and Go's hand-written
route parser all read.

`loads` reads standard JSON, and when that fails the dialect of fastjson, in which Java writes maps whose keys are no
strings: unquoted keys (`{0:"10.0.0.1:10911"}`), objects as keys (`{{"brokerName":"b","queueId":0}:{...}}`), single
quotes, trailing commas.  A key that was an object comes out as its JSON text (`dumps` of it), a number as its digits.

Integers are exact at any size that occurs (Go sends versions near 2**61).  NaN, Infinity and numbers that are infinite
as a float are refused, as are nesting deeper than 64, a lone surrogate, and a dialect text of more than a million
characters, or 16 384 in a request: reading it costs a microsecond per character, during which the loop does nothing
else.
Whatever the bytes, the only exception is MalformedBodyError, which the router answers like any bad request: the frame
was sound, the connection stays.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from json import JSONDecoder, JSONEncoder
from typing import Any, NoReturn

NESTING_MAX = 64
FASTJSON_CHARACTERS_MAX = 1024 * 1024
# Of a request that a server reads on its loop: some ten milliseconds.
ASKED_CHARACTERS_MAX = 16 * 1024
_INTEGER_DIGITS_MAX = 100


class MalformedBodyError(ValueError):
    """A body that is not what its request says it is."""


def dumps(value: object) -> bytes:
    """Compact JSON in ASCII, keys sorted; integer keys become their digits in quotes."""
    return _encode(value).encode("ascii")


def member(key: object, value: object) -> bytes:
    """One member of a map, whose key may be an object as fastjson writes it."""
    return f"{_encode(key)}:{_encode(value)}".encode("ascii")


def object_keyed(rows: Iterable[tuple[object, object]]) -> bytes:
    """A map whose keys are objects, as fastjson writes and Java reads it: the keys stand there unquoted."""
    return ("{" + ",".join([f"{_encode(key)}:{_encode(value)}" for key, value in rows]) + "}").encode("ascii")


def loads(body: bytes | bytearray | memoryview, dialect_max: int = FASTJSON_CHARACTERS_MAX) -> object:
    """The value of a JSON or fastjson text in UTF-8; MalformedBodyError when it is neither, or a fastjson text of more
    than `dialect_max` characters.
    """
    try:
        text = str(body, "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedBodyError(f"body is not UTF-8 at byte {error.start}") from error
    try:
        value = DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        if len(text) > dialect_max:
            raise MalformedBodyError(f"body of {len(text)} characters is not JSON") from error
        value = _Fastjson(text).read()
    check(value, text, 0, len(text))
    return value


def check(value: object, text: str, start: int, end: int) -> None:
    """Refuse a value that was read from this part of a text, and nests too deep or cannot be encoded."""
    if text.count("{", start, end) + text.count("[", start, end) > NESTING_MAX:
        _check_nesting(value)
    if text.find("\\ud", start, end) >= 0 or text.find("\\uD", start, end) >= 0:
        _check_surrogates(value)


def asked(body: bytes | bytearray | memoryview) -> dict[str, object]:
    """Return the JSON object of a request's body; the dialect is bounded so that one request cannot block the loop."""
    return loads_object(body, ASKED_CHARACTERS_MAX)


def loads_object(
    body: bytes | bytearray | memoryview, dialect_max: int = FASTJSON_CHARACTERS_MAX
) -> dict[str, object]:
    """The object that the body is; MalformedBodyError when it is anything else."""
    value = loads(body, dialect_max)
    if not isinstance(value, dict):
        raise MalformedBodyError(f"body is a JSON {type(value).__name__}, expected an object")
    return value


def _integer(text: str) -> int:
    if len(text) > _INTEGER_DIGITS_MAX:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _real(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} has no finite value")
    return value


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_encode = JSONEncoder(separators=(",", ":"), sort_keys=True, allow_nan=False).encode
_encode_unicode = JSONEncoder(ensure_ascii=False).encode
DECODER = JSONDecoder(strict=False, parse_int=_integer, parse_float=_real, parse_constant=_constant)


def _check_nesting(value: object) -> None:
    """Refuse too deep nesting; level by level, without a call for each value, because bodies have thousands."""
    level: list[Any] = [value]
    for _ in range(NESTING_MAX):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if outer.__class__ is dict else outer if outer.__class__ is list else ())
            if inner.__class__ is dict or inner.__class__ is list
        ]
        if not level:
            return
    raise MalformedBodyError(f"body nests deeper than {NESTING_MAX} levels")


def _check_surrogates(value: object) -> None:
    """Refuse text that cannot be encoded; otherwise the error would come much later, in unrelated code."""
    try:
        _encode_unicode(value).encode()
    except UnicodeEncodeError as error:
        raise MalformedBodyError("body has a surrogate that stands alone") from error


_TOKEN = re.compile(
    r"""[ \t\r\n]*+(?:
        (?P<mark>[{}\[\]:,])
      | "(?P<double>[^"\\]*+(?:\\.[^"\\]*+)*+)"
      | '(?P<single>[^'\\]*+(?:\\.[^'\\]*+)*+)'
      | (?P<bare>[A-Za-z0-9_$.+-]++)
      | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "'": "'", "\\": "\\", "/": "/"}
_WORDS: dict[str, object] = {"true": True, "false": False, "null": None}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)((?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")


class _Fastjson:
    """A recursive reader of the dialect; slow, and only for bodies that standard JSON did not take."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._kind = ""
        self._token = ""
        self._next()

    def read(self) -> object:
        """The one value of the text."""
        value = self._value(NESTING_MAX)
        if self._kind != "end":
            self._refuse("more after the value")
        return value

    def _value(self, levels: int) -> object:
        if levels < 0:
            raise MalformedBodyError(f"body nests deeper than {NESTING_MAX} levels")
        kind, token = self._kind, self._token
        if kind == "mark" and token == "{":
            return self._object(levels - 1)
        if kind == "mark" and token == "[":
            return self._array(levels - 1)
        if kind in ("double", "single"):
            self._next()
            return self._unescaped(token)
        if kind == "bare":
            self._next()
            return self._word(token)
        return self._refuse("no value")

    def _object(self, levels: int) -> dict[str, object]:
        found: dict[str, object] = {}
        self._next()
        while not self._takes("}"):
            key = self._key(levels)
            if not self._takes(":"):
                self._refuse("no colon after a key")
            found[key] = self._value(levels)
            if not self._takes(",") and self._token_is_not("}"):
                self._refuse("neither comma nor the end of an object")
        return found

    def _key(self, levels: int) -> str:
        if self._kind == "bare":
            key = self._token
            self._next()
            return key
        key_value = self._value(levels)
        return key_value if isinstance(key_value, str) else dumps(key_value).decode()

    def _array(self, levels: int) -> list[object]:
        found: list[object] = []
        self._next()
        while not self._takes("]"):
            found.append(self._value(levels))
            if not self._takes(",") and self._token_is_not("]"):
                self._refuse("neither comma nor the end of an array")
        return found

    def _word(self, word: str) -> object:
        if word in _WORDS:
            return _WORDS[word]
        match = _NUMBER.fullmatch(word)
        if match is None:
            self._refuse("an unknown word")
        try:
            return _real(word) if match[1] else _integer(word)
        except ValueError as error:
            raise MalformedBodyError(f"body has {error}") from error

    def _unescaped(self, raw: str) -> str:
        if "\\" not in raw:
            return raw
        text = _ESCAPE.sub(self._character, raw)
        # A pair of escaped surrogates is one character; _check_surrogates finds those left alone.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")

    def _character(self, match: re.Match[str]) -> str:
        escape = match[1]
        if len(escape) > 1:
            return chr(int(escape[1:], 16))
        character = _ESCAPES.get(escape)
        if character is None:
            self._refuse("an unknown escape")
        return character

    def _takes(self, mark: str) -> bool:
        if self._kind != "mark" or self._token != mark:
            return False
        self._next()
        return True

    def _token_is_not(self, mark: str) -> bool:
        return self._kind != "mark" or self._token != mark

    def _next(self) -> None:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            self._refuse("a character that begins nothing")
        self._at = match.end()
        self._kind = match.lastgroup or ""
        self._token = match[self._kind]

    def _refuse(self, what: str) -> NoReturn:
        raise MalformedBodyError(f"body is not JSON near character {self._at}: {what}")
