"""Frames: cutting them out of a buffer, decoding them, encoding them.

    length i32 | serialization u8, header length u24 | header | body        length counts all that follows it

Both serializations are read (0 JSON, 1 ROCKETMQ binary); `leaves.headers` says what a header may be, `leaves.fields`
what a well-formed hot request is, and `broker/docs/protocol.md` both with examples.  The rules that decide between
the outcomes, the same in the compiled twin:

    A frame whose length, header length, serialization or header cannot be read breaks the protocol:
    RemoteProtocolError.  Nothing of that buffer is carried out, the connection closes.
    A header that reads is a Command, whatever its code and fields are: unknown codes and missing fields
    are refused by the router and the handlers.
    A request for 10, 310, 320, 11, 361 or 37 that is well-formed is a Send, a Pull or an End.  Responses never are.

No function here reads outside the range it was given, or keeps a reference to the buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct

from gantry.errors import LocalProtocolError, RemoteProtocolError
from gantry.leaves.fields import HOT_CODES, hot_request
from gantry.leaves.headers import quoted, read_binary, read_json, write_binary, write_json
from gantry.leaves.requests import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    LANGUAGE_OTHER,
    LANGUAGE_PYTHON,
    LANGUAGES,
    SERIALIZATION_JSON,
    SERIALIZATION_ROCKETMQ,
    VERSION,
    Command,
    End,
    Pull,
    Send,
)

__all__ = [
    "FLAG_ONEWAY",
    "FLAG_RESPONSE",
    "FRAME_BYTES_MAX",
    "LANGUAGES",
    "LANGUAGE_OTHER",
    "LANGUAGE_PYTHON",
    "SERIALIZATION_JSON",
    "SERIALIZATION_ROCKETMQ",
    "VERSION",
    "Command",
    "End",
    "Pull",
    "Send",
    "decode",
    "encode",
    "encode_end_replies",
    "encode_head",
    "encode_joint_reply",
    "encode_send_replies",
    "encode_success",
    "frame_length",
]

FRAME_BYTES_MAX = 16 * 1024 * 1024
"""The longest frame, its length field included: what Java's decoder takes."""

Decoded = Command | Send | Pull | End

_PREFIX = Struct(">iI")
_LENGTH = Struct(">i")
_HEADER_BYTES_MAX = 0xFFFFFF
_SUCCESS = (
    b'{"code":0,"extFields":{},"flag":1,"language":"PYTHON","opaque":%%d,"serializeTypeCurrentRPC":"JSON","version":%d}'
    % VERSION
)


def decode(buffer: bytes | bytearray | memoryview, start: int, end: int) -> tuple[int, list[Decoded]]:
    """Every whole frame in buffer[start:end], and where the first unfinished one begins.

    Raises RemoteProtocolError for a frame that cannot be decoded, as soon as its first eight bytes show it.
    """
    requests: list[Decoded] = []
    with memoryview(buffer) as view:
        while end - start >= _PREFIX.size:
            length, mark = _PREFIX.unpack_from(view, start)
            header_at = start + _PREFIX.size
            body_at = header_at + (mark & _HEADER_BYTES_MAX)
            stop = start + 4 + length
            serialization = mark >> 24
            if not 4 <= length <= FRAME_BYTES_MAX - 4 or body_at > stop or serialization > SERIALIZATION_ROCKETMQ:
                raise RemoteProtocolError(_fault(length, mark))
            if stop > end:
                return start, requests
            requests.append(_request(view, header_at, body_at, stop, serialization))
            start = stop
        if end - start >= _LENGTH.size:
            frame_length(view, start, end)
    return start, requests


def frame_length(buffer: bytes | bytearray | memoryview, start: int, end: int) -> int | None:
    """How many bytes the frame at `start` has in all, or None while its length has not come.

    Raises RemoteProtocolError as `decode` does, for what can be seen so far.
    """
    if end - start < _LENGTH.size:
        return None
    length: int
    mark: int = 0
    if end - start < _PREFIX.size:
        (length,) = _LENGTH.unpack_from(buffer, start)
    else:
        length, mark = _PREFIX.unpack_from(buffer, start)
    if (
        not 4 <= length <= FRAME_BYTES_MAX - 4
        or (mark & _HEADER_BYTES_MAX) + 4 > length
        or mark >> 24 > SERIALIZATION_ROCKETMQ
    ):
        raise RemoteProtocolError(_fault(length, mark))
    return length + 4


def encode(command: Command) -> bytes:
    """The whole frame of a command, in the serialization that it names."""
    return encode_head(command, len(command.body)) + command.body


def encode_head(command: Command, body_bytes: int) -> bytes:
    """The frame of a command up to its body, of which `body_bytes` bytes have to follow.

    So stored records are sent without copying them: the head, then the memoryviews.  `command.body` is ignored.
    """
    header = write_binary(command) if command.serialization == SERIALIZATION_ROCKETMQ else write_json(command)
    length = 4 + len(header) + body_bytes
    if length > FRAME_BYTES_MAX - 4 or len(header) > _HEADER_BYTES_MAX:
        raise LocalProtocolError(
            f"code {command.code}: a frame of {length + 4} bytes with a header of {len(header)}, "
            f"{FRAME_BYTES_MAX} are allowed"
        )
    return _PREFIX.pack(length, command.serialization << 24 | len(header)) + header


def encode_success(opaque: int) -> bytes:
    """Encode a reply with the code SUCCESS, without remark, fields and body."""
    header = _SUCCESS % opaque
    return _PREFIX.pack(4 + len(header), len(header)) + header


def encode_send_replies(
    sends: Iterable[Send], store_host: bytes, region: str, handles: Sequence[bytes] = ()
) -> bytearray:
    """The success replies of stored sends, one frame each, in their order; one-way sends have none.

    `store_host` is the address that goes into message ids, 4 or 16 bytes and an i32 port.  Always JSON: every client
    decodes a response by the type byte of its frame, or knows nothing but JSON.  handles: a recall handle for each of
    the sends, in base64, or nothing for those that have none.
    """
    replies = bytearray()
    host = store_host.hex().upper()
    for number, send in enumerate(sends):
        if send.rpc_flag & FLAG_ONEWAY:
            continue
        handle = f'"recallHandle":"{handles[number].decode("ascii")}",' if handles and handles[number] else ""
        replies += _stored_reply(send.opaque, send, f"{host}{send.log_offset:016X}", send.unique_key, region, handle)
    return replies


def encode_joint_reply(opaque: int, sends: Sequence[Send], store_host: bytes, region: str) -> bytes:
    """The success reply of a batch whose messages are stored: as above, with the ids and unique keys of all of them,
    each joined by commas, and the place of the first.
    """
    host = store_host.hex().upper()
    ids = ",".join([f"{host}{send.log_offset:016X}" for send in sends])
    return _stored_reply(opaque, sends[0], ids, b",".join([send.unique_key for send in sends]), region)


def _stored_reply(
    opaque: int, first: Send, message_ids: str, unique_keys: bytes, region: str, handle: str = ""
) -> bytes:
    header = (
        f'{{"code":0,"extFields":{{"MSG_REGION":{quoted(region)},"TRACE_ON":"true","msgId":"{message_ids}",'
        f'"queueId":"{first.queue_id}","queueOffset":"{first.queue_offset}",{handle}'
        f'"transactionId":{quoted(unique_keys.decode("utf-8", "replace"))}}},"flag":1,"language":"PYTHON",'
        f'"opaque":{opaque},"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'
    ).encode()
    return _PREFIX.pack(4 + len(header), len(header)) + header


def encode_end_replies(ends: Sequence[End]) -> tuple[bytearray, int]:
    """The success replies of ends of transactions, one frame each, and how many; one-way ends have none."""
    replies = [encode_success(end.opaque) for end in ends if not end.rpc_flag & FLAG_ONEWAY]
    return bytearray(b"".join(replies)), len(replies)


def _request(view: memoryview, header_at: int, body_at: int, stop: int, serialization: int) -> Decoded:
    if serialization == SERIALIZATION_JSON:
        try:
            text = str(view[header_at:body_at], "utf-8")
        except UnicodeDecodeError as error:
            raise RemoteProtocolError(f"frame header is not UTF-8 at byte {error.start}") from error
        parts = read_json(text)
    else:
        parts = read_binary(view, header_at, body_at)
    code, language, version, opaque, flag, remark, ext = parts
    body = bytes(view[body_at:stop])
    if code in HOT_CODES and not flag & FLAG_RESPONSE:
        request = hot_request(code, language, version, opaque, flag, serialization, ext, body)
        if request is not None:
            return request
    return Command(
        code,
        language=language,
        version=version,
        opaque=opaque,
        flag=flag,
        remark=remark,
        ext=ext,
        body=body,
        serialization=serialization,
    )


def _fault(length: int, mark: int) -> str:
    if not 4 <= length <= FRAME_BYTES_MAX - 4:
        return f"frame claims {length} bytes after its length, between 4 and {FRAME_BYTES_MAX - 4} are allowed"
    if mark >> 24 > SERIALIZATION_ROCKETMQ:
        return f"frame with serialization {mark >> 24}, known are 0 (JSON) and 1 (ROCKETMQ)"
    return f"frame claims a header of {mark & _HEADER_BYTES_MAX} bytes, {length - 4} left"
