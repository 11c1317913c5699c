"""Where a group begins in a queue in which it has no offset.

    the queue has no message now        at its end, so that a message that comes next is not skipped
    it appeared later than the group    at its first message (`beginnings`); the same where another broker of the topic
                                        says that the group read the topic there before this queue's first message came
    it is young                         at 0, for clients that begin at the end: without this rule a consumer that
                                        starts a second after its producer would miss the messages of that second
    anything else                       as its clients are configured to: at the end, at the begin, at a time

The first three are decided here, for every client and way of reading.  "Appeared later" means that the oldest message
of the queue which is still there was stored after the group began to read the topic.  So retention does not change the
answer, and a queue that is made and read in the same moment is not mistaken for an old one.

A queue is young while its first message is there and near the end of the log, as with RocketMQ.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from gantry.errors import Refusal, RefusedError
from gantry.metadata.beginnings import Began
from gantry.metadata.offsets import Offsets
from gantry.metadata.topics import Topics
from gantry.store.store import Store
from gantry.wire.codes import ResponseCode

# How far the clocks of two brokers may be apart; within it, messages are rather read again than skipped.
_CLOCKS_APART_MS = 60_000
# A member asks for queue after queue, and each time all queues of the topic are looked at.
_TIMES_MAX = 10_000
_LOOKED_AT_ONCE = 64
# A client waits some seconds for its answer.
_DISK_S = 3.0
_SLOW_DISK = Refusal(ResponseCode.SYSTEM_BUSY, "the disk takes long to tell how old the queues are; ask again")

Elsewhere = Callable[[str, str], Awaitable[int | None]]
"""Returns since when (wall clock, ms) a group reads a topic on another broker; None: it does not, or nobody answers."""


class GroupStarts:
    """Decides where groups begin.  Loop thread only."""

    def __init__(
        self,
        offsets: Offsets,
        topics: Topics,
        store: Store,
        young_bytes: int,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """young_bytes: how near the end of the log a young queue's first message is; elsewhere: None where there are no
        other brokers to ask.
        """
        self._offsets = offsets
        self._topics = topics
        self._store = store
        self._young_bytes = young_bytes
        self._elsewhere = elsewhere
        self._times_ms: OrderedDict[int, int] = OrderedDict()  # when records were stored, by log offset

    def queues(self, topic: str) -> int:
        """Return how many queues a topic has; 0 for an unknown one."""
        config = self._topics.get(topic)
        return 0 if config is None else max(config.read_queues, config.write_queues)

    def given(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return where the group begins whatever its clients are configured to; None: they decide."""
        if not 0 <= queue_id < self.queues(topic):
            return None
        low, end = self._store.queue_range(topic, queue_id) or (0, 0)
        if low >= end:
            return end
        began = self._offsets.began(group, topic)
        if began is None:
            return None
        first = self._store.reader.entry(topic, queue_id, low)
        return low if first is not None and first[0] >= began.log_offset else None

    def end(self, topic: str, queue_id: int) -> int | None:
        """Return the end of a queue; None when the topic does not have it."""
        return self._store.next_queue_offset(topic, queue_id) if 0 <= queue_id < self.queues(topic) else None

    def is_young(self, topic: str, queue_id: int) -> bool:
        """Return whether the queue's first message is there and near the end of the log."""
        low, _ = self._store.queue_range(topic, queue_id) or (0, 0)
        first = self._store.reader.entry(topic, queue_id, 0) if low == 0 else None
        return first is not None and self._store.written.offset - first[0] <= self._young_bytes

    def is_unknown(self, group: str, topic: str) -> bool:
        """Return whether only another broker can know whether the group reads this topic."""
        return self._elsewhere is not None and self._offsets.began(group, topic) is None

    async def learn(self, group: str, topic: str) -> None:
        """Ask the other brokers of a topic since when a group reads it there.  Store offsets for the queues of this
        broker that appeared since then.  RefusedError when the disk takes too long: who begins without an answer may
        skip messages.
        """
        at_ms = None if self._elsewhere is None else await self._elsewhere(group, topic)
        if at_ms is None:
            return
        try:
            async with asyncio.timeout(_DISK_S):
                found = await self._appeared_since(topic, at_ms - _CLOCKS_APART_MS)
        except TimeoutError as error:
            raise RefusedError(_SLOW_DISK.code, _SLOW_DISK.remark) from error
        # No await from here on: what the group did meanwhile counts.
        if found and self.is_unknown(group, topic):
            self._offsets.begins.put(f"{topic}@{group}", Began(self._store.written.offset, at_ms))
            for queue_id, low in found.items():
                self._offsets.commit(group, topic, queue_id, low)

    async def _appeared_since(self, topic: str, begin_ms: int) -> dict[int, int]:
        """Return the first offsets of the queues whose oldest message was stored then or later, by queue id."""
        found: dict[int, int] = {}
        for queue_id in range(self.queues(topic)):
            low, end = self._store.queue_range(topic, queue_id) or (0, 0)
            if low < end and await self._stored_ms(topic, queue_id, low) >= begin_ms:
                found[queue_id] = low
            if queue_id % _LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)
        return found

    async def _stored_ms(self, topic: str, queue_id: int, offset: int) -> int:
        """Return when a message was stored, 0 when it is gone; its record is brought in from the disk first."""
        entry = self._store.reader.entry(topic, queue_id, offset)
        if entry is None:
            return 0
        known_ms = self._times_ms.get(entry[0])
        if known_ms is not None:
            return known_ms
        is_in = asyncio.Event()
        self._store.bring_in([entry[:2]], is_in.set)
        await is_in.wait()
        stored_ms = self._store.reader.store_time(topic, queue_id, offset)
        if stored_ms is None:
            return 0
        self._times_ms[entry[0]] = stored_ms
        if len(self._times_ms) > _TIMES_MAX:
            self._times_ms.popitem(last=False)
        return stored_ms
