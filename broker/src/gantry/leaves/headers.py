"""The header of a frame, in its two serializations, to and from its parts.

JSON (0): one object.  `code` has to be there; `flag`, `opaque`, `version` are 0, `language` is OTHER, `remark` is
None and `extFields` is empty where they are missing or null; other keys are ignored.  Precisely:

    Numbers count as their own text, and text as numbers: 10 and "10" are the same code, 5 and "5" the same field.
    true and false are the texts "true" and "false".  A null field did not come.
    code, flag, opaque and version are i32 integers.  A language is a name, or its number; an unknown one is OTHER.
    A remark or field that is an object or array, a header that nests deeper than 16, NaN and Infinity, a lone
    surrogate, bytes that are not UTF-8: not a header.  Of duplicate keys the last counts.  Raw control
    characters in strings are accepted, as fastjson accepts them.

ROCKETMQ (1): code i16, language i8, version i16, opaque i32, flag i32, remark (i32 length), fields (i32 length) of
(name i16 length, value i32 length).  A field with an empty value did not come; an empty remark is None.  Lengths must
be non-negative and the parts must fill the header exactly.
"""

from __future__ import annotations

import struct
from json import JSONDecodeError, JSONDecoder, dumps
from json.encoder import encode_basestring_ascii as quoted_ascii
from struct import Struct
from typing import Any, NoReturn

from gantry.errors import LocalProtocolError, RemoteProtocolError
from gantry.leaves.fields import I32_MAX, I32_MIN, integer
from gantry.leaves.requests import LANGUAGE_OTHER, LANGUAGES, Command

NESTING_MAX = 16

quoted = quoted_ascii
"""A text as a JSON string, ASCII only."""

Parts = tuple[int, int, int, int, int, str | None, dict[str, str]]
"""code, language, version, opaque, flag, remark, fields."""

_BINARY_HEAD = Struct(">hbhiii")  # code, language, version, opaque, flag, remark length
_BINARY_BYTES_MIN = _BINARY_HEAD.size + 4
_LENGTH = Struct(">i")
_NAME_LENGTH = Struct(">h")
_LANGUAGE_NUMBERS = {name: number for number, name in enumerate(LANGUAGES)} | {
    str(number): number for number in range(len(LANGUAGES))
}
# Codes, flags and versions are nearly always among these, and looking up is cheaper than converting.
_SMALL_NUMBERS = {str(number): number for number in range(1024)}


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# parse_int=str keeps every number as it was written: no digit limit, no float that rounds an i64.
_decode_json = JSONDecoder(strict=False, parse_int=str, parse_float=str, parse_constant=_refuse_constant).decode


def read_json(text: str) -> Parts:
    """The parts of a JSON header; RemoteProtocolError when it is none."""
    try:
        header = _decode_json(text)
        if "\\ud" in text or "\\uD" in text:
            dumps(header, ensure_ascii=False).encode()
    except RecursionError as error:
        raise RemoteProtocolError("frame header is not JSON: nested too deeply") from error
    except UnicodeEncodeError as error:
        raise RemoteProtocolError("frame header is not JSON: a surrogate stands alone") from error
    except JSONDecodeError as error:
        raise RemoteProtocolError(f"frame header is not JSON: {error.msg} at character {error.pos}") from error
    except ValueError as error:
        raise RemoteProtocolError(f"frame header is not JSON: {error}") from error
    if type(header) is not dict:
        raise RemoteProtocolError(f"frame header is a JSON {type(header).__name__}, expected an object")
    get = header.get
    ext = get("extFields")
    for value in header.values():
        if type(value) is not str and value is not ext:
            _check_nesting(value, NESTING_MAX - 1)
    if type(ext) is dict:
        for value in ext.values():
            if type(value) is not str:
                ext = _coerced(ext)
                break
    elif ext is None:
        ext = {}
    else:
        raise RemoteProtocolError(f"extFields is a JSON {type(ext).__name__}, expected an object")
    remark = get("remark")
    if get("code") is None:
        raise RemoteProtocolError("frame header has no code")
    return (
        _number("code", get("code")),
        _language(get("language")),
        _number("version", get("version")),
        _number("opaque", get("opaque")),
        _number("flag", get("flag")),
        None if remark is None else _text("remark", remark),
        ext,
    )


def write_json(command: Command) -> bytes:
    """The JSON header of a command: keys sorted, no blanks, ASCII only, `extFields` always there.

    Java's clients take the fields of a send response without asking whether there are any, Go's parser wants no blanks.
    """
    ext = ",".join([f"{quoted(name)}:{quoted(value)}" for name, value in sorted(command.ext.items())])
    remark = "" if command.remark is None else f'"remark":{quoted(command.remark)},'
    language = LANGUAGES[command.language] if 0 <= command.language < len(LANGUAGES) else "OTHER"
    return (
        f'{{"code":{command.code},"extFields":{{{ext}}},"flag":{command.flag},"language":"{language}",'
        f'"opaque":{command.opaque},{remark}"serializeTypeCurrentRPC":"JSON","version":{command.version}}}'
    ).encode()


def read_binary(buffer: memoryview, at: int, end: int) -> Parts:
    """The parts of the ROCKETMQ header in buffer[at:end]; RemoteProtocolError when it is none."""
    if end - at < _BINARY_BYTES_MIN:
        raise RemoteProtocolError(f"binary frame header has {end - at} bytes, the least is {_BINARY_BYTES_MIN}")
    code, language, version, opaque, flag, length = _BINARY_HEAD.unpack_from(buffer, at)
    at += _BINARY_HEAD.size
    if length < 0 or length > end - at - 4:
        raise RemoteProtocolError(f"binary frame header: remark of {length} bytes, {end - at - 4} left")
    try:
        remark = str(buffer[at : at + length], "utf-8") or None
        at += length + 4
        (length,) = _LENGTH.unpack_from(buffer, at - 4)
        if length != end - at:
            raise RemoteProtocolError(f"binary frame header: fields of {length} bytes, {end - at} left")
        ext = _read_fields(buffer, at, end)
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("binary frame header: text that is not UTF-8") from error
    if not 0 <= language < len(LANGUAGES):
        language = LANGUAGE_OTHER
    return code, language, version, opaque, flag, remark, ext


def write_binary(command: Command) -> bytes:
    """The ROCKETMQ header of a command, its fields sorted by name.

    LocalProtocolError for what its narrow fields cannot hold: pop codes (200050 and up) only travel as JSON.
    """
    parts: list[bytes] = []
    try:
        for name, value in sorted(command.ext.items()):
            key, text = name.encode(), value.encode()
            parts += (_NAME_LENGTH.pack(len(key)), key, _LENGTH.pack(len(text)), text)
        fields = b"".join(parts)
        remark = (command.remark or "").encode()
        head = _BINARY_HEAD.pack(
            command.code, command.language, command.version, command.opaque, command.flag, len(remark)
        )
    except (struct.error, UnicodeEncodeError) as error:
        raise LocalProtocolError(f"code {command.code} does not fit a binary header: {error}") from error
    return head + remark + _LENGTH.pack(len(fields)) + fields


def _read_fields(buffer: memoryview, at: int, end: int) -> dict[str, str]:
    ext: dict[str, str] = {}
    while at < end:
        length = _NAME_LENGTH.unpack_from(buffer, at)[0] if end - at >= 2 else -1
        if length < 0 or length > end - at - 6:
            raise RemoteProtocolError(f"binary frame header: field name of {length} bytes, {end - at - 2} left")
        at += 2
        name = str(buffer[at : at + length], "utf-8")
        at += length + 4
        (length,) = _LENGTH.unpack_from(buffer, at - 4)
        if length < 0 or length > end - at:
            raise RemoteProtocolError(f"binary frame header: field value of {length} bytes, {end - at} left")
        if length:
            ext[name] = str(buffer[at : at + length], "utf-8")
        at += length
    return ext


def _coerced(fields: dict[str, Any]) -> dict[str, str]:
    return {name: _text("extFields", value) for name, value in fields.items() if value is not None}


def _text(name: str, value: Any) -> str:
    if type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    raise RemoteProtocolError(f"frame header: {name} holds a JSON {type(value).__name__}, expected text")


def _number(name: str, value: Any) -> int:
    if value is None:
        return 0
    number = None
    if type(value) is str:
        number = _SMALL_NUMBERS.get(value)
        if number is None:
            number = integer(value, I32_MIN, I32_MAX)
    if number is None:
        raise RemoteProtocolError(f"frame header: {name} is no 32-bit integer")
    return number


def _language(value: Any) -> int:
    return _LANGUAGE_NUMBERS.get(value, LANGUAGE_OTHER) if type(value) is str else LANGUAGE_OTHER


def _check_nesting(value: Any, levels: int) -> None:
    if not isinstance(value, dict | list):
        return
    if levels == 0:
        raise RemoteProtocolError(f"frame header nests deeper than {NESTING_MAX} levels")
    for inner in value.values() if isinstance(value, dict) else value:
        _check_nesting(inner, levels - 1)
