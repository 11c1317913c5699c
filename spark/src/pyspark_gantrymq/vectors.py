"""A pull's records as Arrow columns, all at once: what `rows` makes of them one by one, for a quarter of the time.

Python looks at each record three times, for its size, its body and its properties, and cuts bytes; everything else is
numpy's and Arrow's.  The fixed part of a record, 88 bytes, is gathered into a matrix, of which every field is a slice.
Properties are bytes `name 1 value 2 name 1 value 2`: with the separators squeezed out, and their places as offsets,
they are the strings that a map's names and values are taken from.

It handles the usual records.  A stretch with any other record is decoded by `rows`, which also reports what is wrong
with bytes that are no records:

    head         another magic, IPv6 hosts, a compressed body, another topic than the first one's
    body         does not match its checksum, where that is asked: an error; one that cannot be decompressed comes as it
                 is stored, and a line in the executor's log says so once per cause
    properties   none, not UTF-8, an empty name or value, no unique id

Source: the record's layout is RocketMQ's (broker/docs/store.md), field by field as `gantry.leaves.records` reads it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

from gantry.leaves.hashes import crc31
from gantry.leaves.records import MAGIC_V1, SYS_BORN_HOST_V6, SYS_STORE_HOST_V6
from gantry.model.message import KEYS, SYS_COMPRESSED, TAGS, UNIQUE_KEY, StoredMessage
from gantry.wire import record
from pyspark_gantrymq import rows
from pyspark_gantrymq.columns import RAW_PROPERTIES

_HEAD_BYTES = 88
_RECORD_BYTES_MIN = _HEAD_BYTES + 4  # a topic of one letter, and no properties
_SIZE = Struct(">i")
_ODD = SYS_COMPRESSED | SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6
_PROPERTIES = {"msgId": UNIQUE_KEY, "keys": KEYS, "tags": TAGS, "transactionId": rows.TRANSACTION_ID}
_NUMBERS = {"queueId": (12, 4), "flag": (16, 4), "queueOffset": (20, 8), "commitLogOffset": (28, 8)}
_NUMBERS |= {"sysFlag": (36, 4), "reconsumeTimes": (72, 4)}
_INSTANT = pa.timestamp("us", tz="UTC")
_TIMES = {"bornTimestamp": 40, "storeTimestamp": 56}


_CAUSES: set[str] = set()  # executors live as long as their process, and read many batches
_CAUSES_MAX = 32
log = logging.getLogger(__name__)


class _OddError(Exception):
    """The records are unusual and have to be decoded by `rows`; never leaves this module."""


class Pulled:
    """The records of one answer; `offsets` are their queue offsets."""

    def __init__(self, data: bytes, broker_name: str, is_checked: bool = True) -> None:
        self._is_checked = is_checked
        self._data = data
        self._broker_name = broker_name
        self._starts = _starts(data)
        self._heads = _heads(data, self._starts)
        self.offsets = self._field(20, 8)

    def batch(self, names: Sequence[str], end: int) -> pa.RecordBatch:
        """Return columns of the records below the queue offset `end`; RemoteProtocolError for a bad record."""
        count = int(np.searchsorted(self.offsets, end))
        self._starts, self._heads = self._starts[:count], self._heads[:count]
        self.offsets = self.offsets[:count]
        try:
            return self._columns(names)
        except (_OddError, pa.ArrowInvalid):
            found = record.messages(self._data, self._broker_name, self._is_checked)
            for one in found:
                if one.decode_error and one.queue_offset < end:
                    _warn(one)
            return rows.one_by_one([one for one in found if one.queue_offset < end], names)

    def _columns(self, names: Sequence[str]) -> pa.RecordBatch:
        count = len(self._starts)
        if not count or (self._field(4, 4) != MAGIC_V1).any() or (self._field(36, 4) & _ODD).any():
            raise _OddError
        ends = self._starts + _HEAD_BYTES + self._field(84, 4)
        topic = _topic(self._data, ends)
        lengths_at, stops = ends + 1 + len(topic), self._starts + self._field(0, 4)
        if (ends < self._starts + _HEAD_BYTES).any() or (lengths_at + 2 > stops).any():
            raise _OddError
        makers: dict[str, Callable[[], Any]] = {
            "topic": lambda: _texts([topic]).take(_zeros(count)),
            "brokerName": lambda: _texts([self._broker_name.encode()]).take(_zeros(count)),
            "bornHost": lambda: self._hosts(48),
            "body": lambda: self._bodies(ends),
        }
        properties = None
        if any(name in _PROPERTIES or name in ("properties", RAW_PROPERTIES) for name in names):
            properties = _Properties(self._data, lengths_at, stops)
        columns = []
        for name in names:
            if name in _NUMBERS:
                at, width = _NUMBERS[name]
                columns.append(pa.array(self._field(at, width), pa.int32() if width == 4 else pa.int64()))
            elif name in _TIMES:
                times_ms = np.clip(self._field(_TIMES[name], 8), 0, rows.TIME_MS_MAX)
                columns.append(pa.array(times_ms * 1000).view(_INSTANT))
            elif properties is not None and name == "properties":
                columns.append(properties.map())
            elif properties is not None and name == RAW_PROPERTIES:
                columns.append(properties.text())
            elif properties is not None and name in _PROPERTIES:
                columns.append(properties.values_of(_PROPERTIES[name], is_required=name == "msgId"))
            else:
                columns.append(makers[name]())
        return pa.RecordBatch.from_arrays(columns, schema=rows.schema_of(names))

    def _field(self, at: int, width: int) -> np.ndarray[Any, Any]:
        found = np.ascontiguousarray(self._heads[:, at : at + width]).view(f">i{width}")[:, 0]
        return found.astype(np.int64 if width == 8 else np.int32)

    def _hosts(self, at: int) -> Any:
        raw = np.ascontiguousarray(self._heads[:, at : at + 8]).view("V8")[:, 0]
        hosts, which = np.unique(raw.view(np.uint64), return_inverse=True)
        return _texts([record.host_text(host.tobytes()).encode() for host in hosts]).take(pa.array(which))

    def _bodies(self, ends: np.ndarray[Any, Any]) -> Any:
        data = self._data
        bodies = [data[a + _HEAD_BYTES : b] for a, b in zip(self._starts.tolist(), ends.tolist(), strict=True)]
        if self._is_checked and [crc31(body) if body else 0 for body in bodies] != [
            crc if body else 0 for crc, body in zip(self._field(8, 4).tolist(), bodies, strict=True)
        ]:
            raise _OddError
        return pa.Array.from_buffers(pa.binary(), len(bodies), [None, _offsets(bodies), pa.py_buffer(b"".join(bodies))])


class _Properties:
    """The property names and values of all records, one after the other, and how many each record has."""

    def __init__(self, data: bytes, lengths_at: np.ndarray[Any, Any], stops: np.ndarray[Any, Any]) -> None:
        starts = lengths_at + 2
        octets = np.frombuffer(data, np.uint8)
        if (octets[lengths_at].astype(np.int64) * 256 + octets[lengths_at + 1] != stops - starts).any():
            raise _OddError
        if (starts >= stops).any():
            raise _OddError
        closed = (octets[stops - 1] == 2).tolist()
        bounds = zip(starts.tolist(), stops.tolist(), closed, strict=True)
        pieces = [data[a:b] if is_closed else data[a:b] + b"\x02" for a, b, is_closed in bounds]
        joined = np.frombuffer(b"".join(pieces), np.uint8)
        is_separator = joined <= 2
        places = np.flatnonzero(is_separator)
        kinds = joined[places]
        if len(kinds) % 2 or (kinds[0::2] != 1).any() or (kinds[1::2] != 2).any():
            raise _OddError
        offsets = np.zeros(len(places) + 1, np.int32)
        offsets[1:] = places - np.arange(len(places))
        if (np.diff(offsets) == 0).any():
            raise _OddError
        text = pa.py_buffer(np.ascontiguousarray(joined[~is_separator]))
        tokens = pa.Array.from_buffers(pa.string(), len(places), [None, pa.py_buffer(offsets), text])
        tokens.validate(full=True)
        count = len(places) // 2
        self._names = tokens.take(pa.array(np.arange(0, 2 * count, 2)))
        self._values = tokens.take(pa.array(np.arange(1, 2 * count, 2)))
        ends = np.cumsum([len(piece) for piece in pieces])
        self._bounds = np.zeros(len(pieces) + 1, np.int32)
        self._bounds[1:] = np.searchsorted(places[1::2], ends)
        self._rows = np.repeat(np.arange(len(pieces)), np.diff(self._bounds))
        names = self._names.dictionary_encode()
        self._codes = {name: code for code, name in enumerate(names.dictionary.to_pylist())}
        self._indices = np.frombuffer(names.indices.buffers()[1], np.int32, len(names))
        self._drop_repeated()

    def _drop_repeated(self) -> None:
        """Of pairs with the same name in one record the last one counts, at the place of the first.

        Brokers put a batch's own properties before those of each message, so the unique id is there twice.
        """
        pairs = np.arange(len(self._rows))
        places = self._rows * len(self._codes) + self._indices
        last = np.zeros((len(self._bounds) - 1) * len(self._codes), np.int64)
        first = np.copy(last)
        last[places] = pairs  # the later assignment stays
        first[places[::-1]] = pairs[::-1]
        kept = np.flatnonzero(first[places] == pairs)
        if len(kept) == len(pairs):
            return
        self._names = self._names.take(pa.array(kept))
        self._values = self._values.take(pa.array(last[places[kept]]))
        self._rows, self._indices = self._rows[kept], self._indices[kept]
        self._bounds = np.searchsorted(kept, self._bounds).astype(np.int32)

    def map(self) -> Any:
        return pa.MapArray.from_arrays(pa.array(self._bounds), self._names, self._values)

    def text(self) -> Any:
        """Return the stored text without repeated names: Spark refuses to make a map with a name twice."""
        pairs = compute.binary_join_element_wise(self._names, self._values, "\x01")
        lists = pa.ListArray.from_arrays(pa.array(self._bounds), pairs)
        return compute.binary_join_element_wise(compute.binary_join(lists, "\x02"), "", "\x02")

    def values_of(self, name: str, is_required: bool) -> Any:
        """Return one value for each record, null where it has none."""
        found = np.flatnonzero(self._indices == self._codes.get(name, -1))
        which = np.full(len(self._bounds) - 1, -1)
        which[self._rows[found]] = found
        is_absent = which < 0
        if is_required and is_absent.any():
            raise _OddError
        return self._values.take(pa.array(which, mask=is_absent))


def _warn(one: StoredMessage) -> None:
    """Report a message that cannot be decoded; of each cause the first one that this process meets."""
    if one.decode_error not in _CAUSES and len(_CAUSES) < _CAUSES_MAX:
        _CAUSES.add(one.decode_error)
        where = f"{one.topic}, {one.broker_name}, queue {one.queue_id}, offset {one.queue_offset}"
        log.warning(
            "%s: the body is passed on as it is stored: %s; later ones of this cause are not reported",
            where,
            one.decode_error,
        )


def _starts(data: bytes) -> np.ndarray[Any, Any]:
    """Return where records begin, as far as their sizes are possible; `rows` reports the first wrong one."""
    starts, at, end = [], 0, len(data)
    while end - at >= _RECORD_BYTES_MIN:
        (size,) = _SIZE.unpack_from(data, at)
        if not _RECORD_BYTES_MIN <= size <= end - at:
            break
        starts.append(at)
        at += size
    if at != end:
        record.messages(data)  # raises
    return np.array(starts, np.int64)


def _heads(data: bytes, starts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if not len(starts):
        return np.zeros((0, _HEAD_BYTES), np.uint8)
    return np.frombuffer(data, np.uint8)[starts[:, None] + np.arange(_HEAD_BYTES)]


def _topic(data: bytes, ends: np.ndarray[Any, Any]) -> bytes:
    """Return the topic, if all records have the same."""
    if (ends < 0).any() or (ends >= len(data)).any():
        raise _OddError
    first = int(ends[0])
    topic = data[first + 1 : first + 1 + data[first]]
    wanted = data[first : first + 1 + len(topic)] if topic else b""
    if not topic.isascii() or not topic or any(not data.startswith(wanted, at) for at in ends.tolist()):
        raise _OddError
    return topic


def _texts(pieces: Sequence[bytes]) -> Any:
    """Make an array of texts; `pa.array` looks for packages that are not installed whenever it gets Python strings."""
    return pa.Array.from_buffers(pa.string(), len(pieces), [None, _offsets(pieces), pa.py_buffer(b"".join(pieces))])


def _zeros(count: int) -> Any:
    return pa.array(np.zeros(count, np.int32))


def _offsets(pieces: Sequence[bytes]) -> Any:
    lengths = [len(piece) for piece in pieces]
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.py_buffer(offsets)
