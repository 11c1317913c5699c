"""Where groups go on popping, queue by queue, and when that is saved.

A position moves when messages are popped, before anything is on the disk.  The consumer offset follows it when the
lease is confirmed and flushed: an offset in a file is never ahead of the leases in the log, under any policy.  So a
crash forgets no popped message.

What an orderly pop has acknowledged is done, so its offset follows as soon as the acknowledgement is confirmed, which
is when it is answered.  It waits for the disk as well only while a message of the queue that was moved to the
dead-letter topic is not on the disk yet: the offset would pass it over, and a power cut take its copy.

A position only grows.  Two things set it: an administrator's reset of the group (code 222), which also cancels what
was to be saved; and an offset that somebody else committed further ahead (members that pull).  RocketMQ: a start offset
is the larger of the committed and the popped one.

The offsets of the revive queues go the same way; they are the last handled ones, as RocketMQ saves them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from gantry.metadata.offsets import NOT_COMMITTED, Offsets
from gantry.pop.book import Queue
from gantry.store.store import Store


class _Position:
    """A queue's position, and the reset after which it was set."""

    __slots__ = ("following", "place")

    def __init__(self, following: int, place: int) -> None:
        self.following = following
        self.place = place


class _Unsaved(NamedTuple):
    """An offset that is saved when the log is kept up to `end`, unless the queue is reset before."""

    end: int
    queue: Queue
    offset: int
    place: int


class Positions:
    """All positions.  Loop thread only."""

    def __init__(self, store: Store, offsets: Offsets) -> None:
        self._store = store
        self._offsets = offsets
        self._known: dict[Queue, _Position] = {}
        self._unsaved: deque[_Unsaved] = deque()
        self._done: deque[_Unsaved] = deque()  # these wait only until they are confirmed
        self._owed: dict[Queue, int] = {}  # queues whose offset may not pass a copy in the log before that is flushed
        self._is_listening = False

    def go_on(self, queue: Queue) -> int | None:
        """Return where the group goes on in this queue for a pop; None when it never read there.

        A pop obeys a mark (`metadata.marks`) at once, so it is lifted.  Its offset is committed then: otherwise a group
        that reads a topic which was made again would have none after a start, and might begin at the last message.
        """
        group, topic, queue_id = queue
        if self._offsets.is_marked(topic) and self._offsets.is_reset(group, topic, queue_id):
            target = self._offsets.query(group, topic, queue_id)
            self._offsets.has_moved(group, topic, queue_id)
            self._offsets.commit(group, topic, queue_id, target)
        return self.of(queue)

    def of(self, queue: Queue) -> int | None:
        """Return where the group would go on in this queue; None when it never read there.  Marks stay: a look must not
        let commits of a member count that still pulls what was deleted.
        """
        group, topic, queue_id = queue
        place = self._offsets.places.of(group, topic, queue_id)
        committed = self._offsets.query(group, topic, queue_id)
        known = self._known.get(queue)
        if known is None or known.place != place:
            if committed == NOT_COMMITTED:
                self._known.pop(queue, None)
                return None
            known = self._known[queue] = _Position(committed, place)
        elif committed > known.following:
            known.following = committed
        return known.following

    def begin(self, queue: Queue, offset: int) -> None:
        """Set where a group begins that never read this queue; committed at once."""
        group, topic, queue_id = queue
        self._known[queue] = _Position(offset, self._offsets.places.of(group, topic, queue_id))
        self._offsets.commit(group, topic, queue_id, offset)

    def move(self, queue: Queue, following: int) -> None:
        """Move a position; its offset is saved when the log is kept as far as it is written now."""
        known = self._known[queue]
        if following != known.following:
            known.following = following
            self.save_later(queue, following)

    def save_later(self, queue: Queue, offset: int, is_done: bool = False) -> None:
        """Commit an offset when the log is kept as far as it is written now.

        is_done: everything before it is acknowledged, or copied and on the disk; being confirmed is enough.
        """
        if not self._is_listening:  # a broker without pops does without these calls
            self._is_listening = True
            self._store.confirmed.listen(self._save_kept)
            self._store.flushed.listen(self._save_kept)
        end, place = self._store.written.offset, self._offsets.places.of(*queue)
        waits = self._done if is_done and queue not in self._owed else self._unsaved
        waits.append(_Unsaved(end, queue, offset, place))
        self._save_kept(0)

    def owe(self, queue: Queue) -> None:
        """Note that the queue's offset has to wait for the disk: what was written last may not be lost behind it."""
        self._owed[queue] = self._store.written.offset

    def forget(self, is_gone: Callable[[str, str, int], bool]) -> None:
        """Forget the positions of queues (group, topic, queue id) of a deleted topic or group."""
        self._known = {queue: one for queue, one in self._known.items() if not is_gone(*queue)}
        self._unsaved = deque(one for one in self._unsaved if not is_gone(*one.queue))
        self._done = deque(one for one in self._done if not is_gone(*one.queue))
        self._owed = {queue: end for queue, end in self._owed.items() if not is_gone(*queue)}

    def _save_kept(self, _: int) -> None:
        confirmed = self._store.confirmed.offset
        while self._done and self._done[0].end <= confirmed:
            self._commit(self._done.popleft())
        if not self._unsaved:
            return
        kept = min(confirmed, self._store.flushed.offset)
        while self._unsaved and self._unsaved[0].end <= kept:
            one = self._unsaved.popleft()
            if self._owed.get(one.queue, kept + 1) <= one.end:
                del self._owed[one.queue]
            self._commit(one)

    def _commit(self, one: _Unsaved) -> None:
        group, topic, queue_id = one.queue
        is_ahead = one.offset > self._offsets.query(group, topic, queue_id)
        if is_ahead and one.place == self._offsets.places.of(group, topic, queue_id):
            self._offsets.commit(group, topic, queue_id, one.offset)
