"""Reading without a pull: QUERY_MESSAGE (12), SEARCH_OFFSET_BY_TIMESTAMP (29), GET_MAX_OFFSET (30),
GET_MIN_OFFSET (31), GET_EARLIEST_MSG_STORETIME (32), VIEW_MESSAGE_BY_ID (33).  RocketMQ: `QueryMessageProcessor`,
`AdminBrokerProcessor`.

Requests about queues do not check the topic: tools ask about deleted ones, and an unknown queue has an answer.  A
log offset that a client names is used only when a queue entry points to it (see `store.reading`).

A key is searched in steps, and other requests are handled in between.  A request examines a million index entries at
most.  It meets more only when as many later messages have the same key, or share its slot of the index, and fill one
index file; then the answer's remark says that the search ended early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry.clock import Clock
from gantry.leaves.frames import Command
from gantry.store.keysearch import EXAMINED_MAX, HITS_MAX, KeyQuestion, record_at, search, searched
from gantry.store.store import Store
from gantry.store.timesearch import offset_by_time, store_time
from gantry.wire import headers
from gantry.wire.codes import ResponseCode
from gantry.wire.command import reply

if TYPE_CHECKING:
    from gantry.transport.connection import Connection

# RocketMQ: defaultQueryMaxNum for a unique key.
_UNIQUE_HITS_MAX = 32
_FOREVER_MS = 1 << 62
# Half of the longest frame; the first hit always goes.
LOOKUP_BYTES_MAX = 8 << 20
_ANY_BYTES = 1 << 30


class LookupHandlers:
    """Handlers of requests that read the store, except for pulls."""

    def __init__(self, store: Store, clock: Clock, bytes_max: int = LOOKUP_BYTES_MAX) -> None:
        self._store = store
        self._clock = clock
        self._bytes_max = bytes_max

    async def query(self, connection: Connection, command: Command) -> Command:
        """QUERY_MESSAGE: the records with a key, as they are stored."""
        header = headers.parse(command.code, command.ext)
        begin_ms, end_ms = header.integer("beginTimestamp"), header.integer("endTimestamp")
        wanted = header.integer("maxNum")
        if header.boolean("_UNIQUE_KEY_QUERY"):
            # Clients take the begin from the id, which has the time of the producer's clock.
            wanted, begin_ms, end_ms = _UNIQUE_HITS_MAX, 0, _FOREVER_MS
        question = KeyQuestion(header.text("topic"), header.text("key"), begin_ms, end_ms)
        places, is_cut = await searched(search(self._store, question, max(1, min(wanted, HITS_MAX))))
        reader = self._store.reader
        found = [reader.bytes_at(*place) for place in places if reader.holds(*place)]
        cut = f"{EXAMINED_MAX} entries of the index were searched; ask for an earlier time range, or read the topic"
        if not found:
            remark = cut if is_cut else "can not find message, maybe time range not correct"
            return reply(command, ResponseCode.QUERY_NOT_FOUND, remark, self._index_state())
        return reply(command, remark=cut if is_cut else "", ext=self._index_state(), body=self._joined(found))

    async def view(self, connection: Connection, command: Command) -> Command:
        """VIEW_MESSAGE_BY_ID: the record at a log offset, as it is stored."""
        offset = headers.parse(command.code, command.ext).integer("offset")
        found = await searched(record_at(self._store, offset))
        if found is not None:
            fetched = self._store.reader.fetch(found.topic, found.queue_id, found.queue_offset, 1, _ANY_BYTES, None)
            if fetched.places and fetched.places[0][0] == offset:
                return reply(command, body=b"".join(fetched.buffers))
        return reply(command, ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")

    def max_offset(self, connection: Connection, command: Command) -> Command:
        """GET_MAX_OFFSET: the offset that the next message of a queue gets; 0 for an unknown queue."""
        _, high = self._range_of(command) or (0, 0)
        return reply(command, ext=headers.to_ext(offset=high))

    def min_offset(self, connection: Connection, command: Command) -> Command:
        """GET_MIN_OFFSET: the oldest message of a queue, its end for an empty one; 0 for an unknown one."""
        low, _ = self._range_of(command) or (0, 0)
        return reply(command, ext=headers.to_ext(offset=low))

    async def search_offset(self, connection: Connection, command: Command) -> Command:
        """SEARCH_OFFSET_BY_TIMESTAMP: the queue offset at a store time."""
        header = headers.parse(command.code, command.ext)
        is_upper = header.text("boundaryType").upper() == "UPPER"
        topic, queue_id, at_ms = header.text("topic"), header.integer("queueId"), header.integer("timestamp")
        offset = await searched(offset_by_time(self._store, topic, queue_id, at_ms, is_upper))
        return reply(command, ext=headers.to_ext(offset=offset))

    async def earliest_store_time(self, connection: Connection, command: Command) -> Command:
        """GET_EARLIEST_MSG_STORETIME: the store time of a queue's oldest message in ms; -1 when it has none."""
        header = headers.parse(command.code, command.ext)
        low, _ = self._range_of(command) or (0, 0)
        stored_ms = await searched(store_time(self._store, header.text("topic"), header.integer("queueId"), low))
        return reply(command, ext=headers.to_ext(timestamp=-1 if stored_ms is None else stored_ms))

    def _index_state(self) -> dict[str, str]:
        # The index is brought up to date with every dispatch: what is dispatched can be found, as of now.
        return headers.to_ext(
            indexLastUpdateTimestamp=self._clock.now_ms(), indexLastUpdatePhyoffset=self._store.dispatched.offset
        )

    def _range_of(self, command: Command) -> tuple[int, int] | None:
        header = headers.parse(command.code, command.ext)
        return self._store.queue_range(header.text("topic"), header.integer("queueId"))

    def _joined(self, found: list[memoryview]) -> bytes:
        """Return the bytes of as many whole records as fit into one reply."""
        taken: list[memoryview] = []
        total = 0
        for record in found:
            total += len(record)
            if taken and total > self._bytes_max:
                break
            taken.append(record)
        return b"".join(taken)
