"""What became of a transaction that no table holds: the log knows, through the key index.

Every op message of ours stands there under its root, and every message under its unique key.  So this reaches back as
far as the log does, and costs a look into the index: it is for ends that come after their half left the settle map,
and for folders of RocketMQ's broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry.leaves import records
from gantry.model import names
from gantry.transaction.half import HalfFacts
from gantry.transaction.oplog import Outcome, settled_in

if TYPE_CHECKING:
    from gantry.store.reading import Reader
    from gantry.transaction.checker import OpenHalf

_FOREVER_MS = 1 << 62
_HITS_MAX = 8


def outcome_in_log(reader: Reader, root: int) -> Outcome | None:
    """What the newest op message with this root says."""
    newest: tuple[int, Outcome] | None = None
    for hit in reader.query(names.OP_HALF_TOPIC, str(root), _HITS_MAX, 0, _FOREVER_MS):
        found = records.view(hit, 0, len(hit))
        for one in settled_in(found.properties) or ():
            if one.root == root and (newest is None or newest[0] < found.log_offset):
                newest = found.log_offset, one.outcome
    return None if newest is None else newest[1]


def was_delivered(reader: Reader, half: OpenHalf) -> bool:
    """Whether the real message stands in its topic: a commit by RocketMQ's broker, before our time."""
    record = reader.record_at(half.log_offset)
    key = "" if record is None else HalfFacts(record.properties, record.queue_offset).unique_key
    hits = reader.query(half.topic, key, _HITS_MAX, 0, _FOREVER_MS) if key else []
    return any(records.view(hit, 0, len(hit)).prepared_offset == half.log_offset for hit in hits)
