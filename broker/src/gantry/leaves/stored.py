"""Stored records as values: an `Entry` for the dispatcher, a `Record` with all of its fields."""

from __future__ import annotations


class Entry:
    """Where one record stands, for which queue, under which keys."""

    __slots__ = (
        "born_ms",
        "keys",
        "log_offset",
        "prepared_offset",
        "properties",
        "queue_id",
        "queue_offset",
        "size",
        "store_ms",
        "sys_flag",
        "tags_code",
        "topic",
        "unique_key",
    )

    def __init__(
        self,
        log_offset: int,
        size: int,
        topic: str,
        queue_id: int,
        queue_offset: int,
        tags_code: int,
        store_ms: int,
        sys_flag: int,
        prepared_offset: int,
        unique_key: bytes,
        keys: bytes,
        properties: bytes,
        born_ms: int = 0,
    ) -> None:
        self.log_offset = log_offset
        self.size = size
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.tags_code = tags_code
        self.store_ms = store_ms
        self.sys_flag = sys_flag
        self.prepared_offset = prepared_offset
        self.unique_key = unique_key
        self.keys = keys
        self.properties = properties
        self.born_ms = born_ms

    def __repr__(self) -> str:
        return f"Entry({self.topic!r}/{self.queue_id} at {self.queue_offset}, log {self.log_offset}+{self.size})"


class Record:
    """All fields of one record.  `log_offset` is what the record itself claims; the reader has to compare it.

    Hosts are 4 or 16 address bytes and an i32 port; the body is as it was sent, maybe compressed.
    """

    __slots__ = (
        "body",
        "body_crc",
        "born_host",
        "born_ms",
        "flag",
        "log_offset",
        "magic",
        "prepared_offset",
        "properties",
        "queue_id",
        "queue_offset",
        "reconsume_times",
        "size",
        "store_host",
        "store_ms",
        "sys_flag",
        "topic",
    )

    def __init__(
        self,
        size: int,
        magic: int,
        body_crc: int,
        queue_id: int,
        flag: int,
        queue_offset: int,
        log_offset: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        store_ms: int,
        store_host: bytes,
        reconsume_times: int,
        prepared_offset: int,
        body: bytes,
        topic: str,
        properties: bytes,
    ) -> None:
        self.size = size
        self.magic = magic
        self.body_crc = body_crc
        self.queue_id = queue_id
        self.flag = flag
        self.queue_offset = queue_offset
        self.log_offset = log_offset
        self.sys_flag = sys_flag
        self.born_ms = born_ms
        self.born_host = born_host
        self.store_ms = store_ms
        self.store_host = store_host
        self.reconsume_times = reconsume_times
        self.prepared_offset = prepared_offset
        self.body = body
        self.topic = topic
        self.properties = properties

    def __repr__(self) -> str:
        return f"Record({self.topic!r}/{self.queue_id} at {self.queue_offset}, log {self.log_offset}+{self.size})"
