"""Stored bytes and batch bodies, as clients read and write them.

The body of a pull's answer is records one after the other, exactly as they stand in the log.  A client takes them as
`StoredMessage`s with the body decompressed (see `compression`).  Bytes that are no record are a RemoteProtocolError:
the broker promised records.

A message whose body cannot be decompressed comes with the bytes that are stored and with a `decode_error`;
the messages around it are not affected.  Brokers check no compressed body: they would
have to inflate each of them.  A record that a disk has damaged comes likewise.

A batch's body is the inverse: messages that share topic and queue, each with its flag, body and properties.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from gantry.errors import CorruptRecordError, LocalProtocolError, RemoteProtocolError
from gantry.leaves import messages as leaf
from gantry.leaves import properties, records
from gantry.model.message import StoredMessage
from gantry.wire.compression import decompress

INFLATED_BYTES_MAX = 64 << 20  # bodies of one answer; the message that goes beyond is the last one of it

_PLACES = Struct(">12xi4xqq")  # queue id, queue offset and log offset in the head of a record
_PORT = Struct(">i")
_GROUPS = Struct(">8H")


def messages(
    data: bytes | bytearray | memoryview, broker_name: str = "", check_crc: bool = True
) -> list[StoredMessage]:
    """All messages of a pull's answer; RemoteProtocolError when a byte of it is not part of a good record.  Without
    `check_crc` a body need not match its checksum.
    """
    found: list[StoredMessage] = []
    at = 0
    while at < len(data):
        try:
            record = records.view(data, at, len(data), check_crc=check_crc)
        except CorruptRecordError as error:
            raise RemoteProtocolError(f"answer with {len(found)} good records, then: {error}") from error
        found.append(message(record, broker_name))
        at += record.size
    return found


def pulled(data: bytes | bytearray | memoryview, broker_name: str = "", topic: str = "") -> list[StoredMessage]:
    """The messages of a pull's answer; the last ones are left out when the bodies before them fill INFLATED_BYTES_MAX.

    A body that does not match its checksum is a `decode_error` here: one damaged message must not stop a queue.  A
    record that cannot be read at all ends the answer, or begins it: then it is a message of this topic with the stored
    bytes as its body.
    """
    found: list[StoredMessage] = []
    at = inflated = 0
    while True:
        run, at = leaf.read(data, at, INFLATED_BYTES_MAX - inflated, StoredMessage, host_text, broker_name)
        found += run
        if at == len(data):
            break
        inflated += sum([len(one.body) for one in run])
        if inflated >= INFLATED_BYTES_MAX:
            break
        damage = ""
        try:
            record = records.view(data, at, len(data), check_crc=True)
        except CorruptRecordError as error:
            damage = f"the record is damaged: {error}"
            try:
                record = records.view(data, at, len(data), check_crc=False)
            except CorruptRecordError:
                if found:
                    break
                found.append(_unreadable(data, broker_name, topic, damage))
                at += found[0].size
                continue
        found.append(message(record, broker_name, damage))
        inflated += len(found[-1].body)
        at += record.size
    return found


def _unreadable(data: bytes | bytearray | memoryview, broker_name: str, topic: str, damage: str) -> StoredMessage:
    """What is known of a record whose parts do not fit together; RemoteProtocolError when not even its size can be."""
    size = int.from_bytes(data[:4], "big", signed=True)
    if not records.RECORD_BYTES_MIN <= size <= len(data):
        raise RemoteProtocolError(f"answer that begins with no record: {damage}")
    queue_id, queue_offset, log_offset = _PLACES.unpack_from(data)
    return StoredMessage(
        topic=topic,
        body=bytes(data[:size]),
        properties={},
        queue_id=queue_id,
        queue_offset=queue_offset,
        log_offset=log_offset,
        size=size,
        flag=0,
        sys_flag=0,
        born_ms=0,
        born_host="",
        store_ms=0,
        store_host="",
        reconsume_times=0,
        prepared_offset=0,
        offset_message_id="",
        broker_name=broker_name,
        decode_error=damage,
    )


def message(record: records.Record, broker_name: str = "", damage: str = "") -> StoredMessage:
    """One record as the user sees it; with `damage` its body stays as it is stored."""
    body = record.body
    if not damage:
        try:
            body = decompress(record.sys_flag, body, "the message")
        except RemoteProtocolError as error:
            damage = str(error)
    return StoredMessage(
        topic=record.topic,
        body=body,
        properties=properties.parse(record.properties),
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        log_offset=record.log_offset,
        size=record.size,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_ms=record.born_ms,
        born_host=host_text(record.born_host),
        store_ms=record.store_ms,
        store_host=host_text(record.store_host),
        reconsume_times=record.reconsume_times,
        prepared_offset=record.prepared_offset,
        offset_message_id=records.offset_message_id(record.store_host, record.log_offset),
        broker_name=broker_name,
        decode_error=damage,
    )


def join_batch(batch: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """Encode a batch of (user flag, body, properties) as a body; `leaves.records.split_batch` is the inverse."""
    try:
        return leaf.join(batch)
    except OverflowError as error:
        raise LocalProtocolError(f"{error}; send fewer or shorter") from error


def host_text(host: bytes) -> str:
    """ "address:port" of a stored host, IPv6 addresses in brackets."""
    (port,) = _PORT.unpack_from(host, len(host) - _PORT.size)
    address = host[: -_PORT.size]
    if len(address) == 16:
        return f"[{':'.join(f'{group:x}' for group in _GROUPS.unpack(address))}]:{port}"
    return f"{'.'.join(map(str, address))}:{port}"
