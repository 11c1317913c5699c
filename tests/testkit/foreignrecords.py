"""Records that no client could have brought: as they come with a folder of another broker, of an older version, or from
a master.  What the broker itself appends is held to more (`Store.append`).
"""

from __future__ import annotations

from collections.abc import Sequence

from gantry.leaves import frames, records
from gantry.leaves.queues import NO_QUEUE_BIT
from gantry.store.store import Store

_STORE_MS = 1_000_000


def append_foreign(store: Store, sends: Sequence[frames.Send], store_ms: int = _STORE_MS) -> None:
    """Write these as another broker would have: PREPARED and ROLLBACK get no queue offset, all others the next one."""
    host, heads = store.store_host, store._table.heads
    for send in sends:
        key = send.topic, send.queue_id
        send.queue_offset = 0 if send.sys_flag & NO_QUEUE_BIT else heads.get(key, 0)
        if not send.sys_flag & NO_QUEUE_BIT:
            heads[key] = send.queue_offset + 1
    data = bytearray(sum(records.size_of(send, len(host)) for send in sends))
    records.encode_run(data, 0, store.written.offset, sends, max(store_ms, store._store_ms), host)
    store.append_raw(store.written.offset, memoryview(data))
