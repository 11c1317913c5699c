"""Where in the log groups were reset: leases of popped messages that are older do not move their offsets any more.

A start sets the offset of a group that pops behind the newest lease in the log, because an offset is saved up to five
seconds later than it moves (`gantry.pop.recovery`).  A reset by an administrator counts from its place in the log on:
older leases do not undo it.  A group that was deleted has such a place too, under `@group`, for all topics.

Saved in the document of the offsets, and sent to slaves.  Places below the log's start are of no use and are removed.
"""

from __future__ import annotations

from collections.abc import Iterator

from gantry.store.lineblocks import LineBlocks

_KEYS_MAX = 100_000
_SLICE = 2000  # places that are looked at between two turns of the loop


class ResetPlaces:
    """Log offsets of resets by `topic@group` and queue id; only `Offsets` changes them."""

    def __init__(self, table: dict[str, dict[int, int]]) -> None:
        self._table = table
        self.lines = LineBlocks(self.value)
        self.lines.fill(table)
        self.touched: set[str] | None = None  # changed keys, for replication; None without

    def __bool__(self) -> bool:
        return bool(self._table)

    def put(self, key: str, queue_id: int, log_offset: int) -> None:
        """Note that this queue was reset when the log ended there; the oldest key goes when there are too many."""
        self._table.setdefault(key, {})[queue_id] = log_offset
        self._touch(key)
        if len(self._table) > _KEYS_MAX:
            gone = next(iter(self._table))
            del self._table[gone]
            self._touch(gone)

    def of(self, group: str, topic: str, queue_id: int) -> int:
        """Return where the log ended when this queue was reset last, or its group deleted; -1 when it never was."""
        if not self._table:
            return -1
        return max(
            self._table.get(f"{topic}@{group}", {}).get(queue_id, -1), self._table.get(f"@{group}", {}).get(0, -1)
        )

    def forget_below(self, log_start: int) -> Iterator[bool]:
        """Remove places below the log's start, in slices of a millisecond; each returns whether there were any."""
        is_changed, looked_at = False, 0
        for key in list(self._table):
            queues = self._table.get(key, {})  # others changed the table between two slices
            for queue_id, log_offset in list(queues.items()):
                looked_at += 1
                if looked_at % _SLICE == 0:
                    yield is_changed
                    is_changed = False
                # A reset between two slices gave it a newer place, or a whole new key.
                if log_offset < log_start and self._table.get(key) is queues and queues.get(queue_id) == log_offset:
                    self._remove(key, queues, queue_id)
                    is_changed = True
        yield is_changed

    def _remove(self, key: str, queues: dict[int, int], queue_id: int) -> None:
        del queues[queue_id]
        if not queues:
            del self._table[key]
        self._touch(key)

    def bound(self, log_end: int) -> bool:
        """Set places behind the log's end back to it; return whether there were any.

        Else they would hide what is stored there next, in a log that a crash or a change of the master made shorter.
        """
        ahead = [(key, one) for key, queues in self._table.items() for one, at in queues.items() if at > log_end]
        for key, queue_id in ahead:
            self._table[key][queue_id] = log_end
            self._touch(key)
        return bool(ahead)

    def keys(self) -> list[str]:
        """Return every key."""
        return list(self._table)

    def value(self, key: str) -> dict[str, int] | None:
        """Return the places of a key as they are sent to a slave; None when there are none."""
        queues = self._table.get(key)
        return None if queues is None else {str(queue_id): at for queue_id, at in queues.items()}

    def follow(self, key: str, queues: dict[int, int]) -> bool:
        """Take over the master's places of a key; return whether they differ."""
        if self._table.get(key, {}) == queues:
            return False
        self._table.pop(key, None)
        if queues:
            self._table[key] = queues
        self.lines.changed.add(key)
        return True

    def _touch(self, key: str) -> None:
        self.lines.changed.add(key)
        if self.touched is not None:
            self.touched.add(key)
