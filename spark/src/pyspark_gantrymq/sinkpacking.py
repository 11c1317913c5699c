"""The properties of an Arrow batch's rows as RocketMQ's bytes, all at once: `name 1 value 2 name 1 value 2 ...`.

What `sinkcolumns` packs row by row, in the same order: the map, TAGS, KEYS, the sharding key, the id.  Arrow joins
columns into bytes, so that Python touches no row; a map's pairs are joined once, and a row's are a stretch of them.

It packs valid batches only.  A batch in which a value holds a separator, a name is RocketMQ's own, a property is null
or empty, or properties are too long is left to `sinkcolumns`, which finds the wrong row and the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gantry.model.message import KEYS, SHARDING_KEY, TAGS, UNIQUE_KEY, property_fault

_NAMES = {"tags": TAGS, "keys": KEYS, "shardingKey": SHARDING_KEY}
_ID_BYTES_MAX = 255
_PLAIN = (pa.string(), pa.binary())


class _OddError(Exception):
    """The batch has a row that only `sinkcolumns` can handle; never leaves this module."""


def packed(batch: pa.RecordBatch, ids: Sequence[str], room: int) -> tuple[list[bytes], list[str]] | None:
    """Return the packed properties of every row, and its id: its own, or else the given one.

    None when a row is not valid.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    try:
        named = _ids(columns.get("msgId"), ids)
        parts = [_maps(columns["properties"])] if "properties" in columns else []
        parts += [_pairs(name, columns[column]) for column, name in _NAMES.items() if column in columns]
        parts.append(_pairs(UNIQUE_KEY, named))
    except _OddError:
        return None
    whole = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, b"")
    if len(whole) and pc.max(pc.binary_length(whole)).as_py() > room:
        return None
    return whole.to_pylist(), list(ids) if "msgId" not in columns else named.to_pylist()


def _ids(given: Any, new: Sequence[str]) -> Any:
    made = pa.array(new, pa.string())
    if given is None:
        return made
    lengths = pc.binary_length(given)
    if len(given) and (pc.max(lengths).as_py() or 0) > _ID_BYTES_MAX:
        raise _OddError
    return pc.if_else(pc.fill_null(pc.greater(lengths, 0), False), given, made)


def _pairs(name: str, values: Any) -> Any:
    """Return `name 1 value 2` for each row, an empty text where it has no value."""
    _check(values)
    joined = pc.binary_join_element_wise(f"{name}\x01".encode(), values.cast(pa.binary()), b"\x02", b"")
    lengths = pc.binary_length(values)
    if values.null_count or not pc.all(pc.greater(lengths, 0)).as_py():
        return pc.if_else(pc.fill_null(pc.greater(lengths, 0), False), joined, b"")
    return joined


def _maps(maps: Any) -> Any:
    """Return all pairs of each row's map, joined."""
    if maps.type.key_type != pa.string() or maps.type.item_type != pa.string():
        raise _OddError
    bounds = maps.offsets.to_numpy()
    if maps.null_count and np.diff(bounds)[maps.is_null().to_numpy(zero_copy_only=False)].any():
        raise _OddError
    first, last = int(bounds[0]), int(bounds[-1])
    names, values = maps.keys[first:last], maps.items[first:last]
    _check(names)
    _check(values)
    if values.null_count or (len(values) and not pc.all(pc.greater(pc.binary_length(values), 0)).as_py()):
        raise _OddError
    if any(property_fault(name, "-") for name in pc.unique(names).to_pylist()):
        raise _OddError
    joined = pc.binary_join_element_wise(names.cast(pa.binary()), b"\x01", values.cast(pa.binary()), b"\x02", b"")
    ends = np.frombuffer(joined.buffers()[1], np.int32)
    offsets = pa.py_buffer(np.ascontiguousarray(ends[bounds - first]))
    return pa.Array.from_buffers(pa.binary(), len(maps), [None, offsets, joined.buffers()[2]])


def _check(values: Any) -> None:
    """Raise _OddError when one of these texts holds a separator."""
    if values.type not in _PLAIN:
        raise _OddError
    _, offsets, data = values.buffers()
    if data is None or not len(values):
        return
    bounds = np.frombuffer(offsets, np.int32)
    octets = np.frombuffer(data, np.uint8)[bounds[values.offset] : bounds[values.offset + len(values)]]
    if (octets - np.uint8(1) < 2).any():
        raise _OddError
