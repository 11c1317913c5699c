"""Looking up in the log, by the key index, how a transaction ended that no table holds.

Every op message of ours is indexed under its root, and every message under its unique key.  So this works as far back
as the log goes, and costs a look-up in the index.  It is for ends that come after their half was removed from the
settle map, and for folders of RocketMQ's broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry.leaves import records
from gantry.model import names
from gantry.transaction.half import HalfFacts
from gantry.transaction.oplog import TransactionState, settled_in

if TYPE_CHECKING:
    from gantry.store.reading import Reader
    from gantry.transaction.checker import OpenHalf

_FOREVER_MS = 1 << 62
_HITS_MAX = 8


def outcome_in_log(reader: Reader, root: int) -> TransactionState | None:
    """Return the outcome in the newest op message with this root; None when there is none."""
    newest: tuple[int, TransactionState] | None = None
    for hit in reader.query(names.OP_HALF_TOPIC, str(root), _HITS_MAX, 0, _FOREVER_MS):
        found = records.view(hit, 0, len(hit))
        for one in settled_in(found.properties) or ():
            if one.root == root and (newest is None or newest[0] < found.log_offset):
                newest = found.log_offset, one.outcome
    return None if newest is None else newest[1]


def was_delivered(reader: Reader, half: OpenHalf) -> bool:
    """Return whether the real message is in its topic: RocketMQ's broker committed it."""
    record = reader.record_at(half.log_offset)
    key = "" if record is None else HalfFacts(record.properties, record.queue_offset).unique_key
    hits = reader.query(half.topic, key, _HITS_MAX, 0, _FOREVER_MS) if key else []
    return any(records.view(hit, 0, len(hit)).prepared_offset == half.log_offset for hit in hits)
