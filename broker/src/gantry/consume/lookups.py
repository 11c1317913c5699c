"""Reading by other ways than a pull: QUERY_MESSAGE (12), SEARCH_OFFSET_BY_TIMESTAMP (29), GET_MAX_OFFSET (30),
GET_MIN_OFFSET (31), GET_EARLIEST_MSG_STORETIME (32), VIEW_MESSAGE_BY_ID (33).  RocketMQ: `QueryMessageProcessor`,
`AdminBrokerProcessor`.

Questions about queues do not look at the topic: tools ask about deleted ones, and an unknown queue has an answer.  A
log offset that a client names is believed only when a queue entry points to it (see `store.reading`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry.clock import Clock
from gantry.leaves.frames import Command
from gantry.store.store import Store
from gantry.wire import headers
from gantry.wire.codes import ResponseCode
from gantry.wire.command import reply

if TYPE_CHECKING:
    from gantry.transport.connection import Connection

# RocketMQ: defaultQueryMaxNum for a unique key, 64 hits at most from the index for others.
_UNIQUE_HITS_MAX = 32
_HITS_MAX = 64
# Half of the longest frame; the first hit always goes.
_BODY_BYTES_MAX = 8 << 20
_ANY_BYTES = 1 << 30


class LookupHandlers:
    """Questions to the store that are not on the hot path."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def query(self, connection: Connection, command: Command) -> Command:
        """QUERY_MESSAGE: the records with a key, as they are stored."""
        header = headers.parse(command.code, command.ext)
        wanted = _UNIQUE_HITS_MAX if header.boolean("_UNIQUE_KEY_QUERY") else header.integer("maxNum")
        found = self._store.reader.query(
            header.text("topic"),
            header.text("key"),
            max(1, min(wanted, _HITS_MAX)),
            header.integer("beginTimestamp"),
            header.integer("endTimestamp"),
        )
        if not found:
            remark = "can not find message, maybe time range not correct"
            return reply(command, ResponseCode.QUERY_NOT_FOUND, remark, self._index_state())
        return reply(command, ext=self._index_state(), body=_joined(found))

    def view(self, connection: Connection, command: Command) -> Command:
        """VIEW_MESSAGE_BY_ID: the record at a log offset, as it is stored."""
        offset = headers.parse(command.code, command.ext).integer("offset")
        found = self._store.reader.record_at(offset)
        if found is not None:
            fetched = self._store.reader.fetch(found.topic, found.queue_id, found.queue_offset, 1, _ANY_BYTES, None)
            if fetched.places and fetched.places[0][0] == offset:
                return reply(command, body=b"".join(fetched.buffers))
        return reply(command, ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")

    def max_offset(self, connection: Connection, command: Command) -> Command:
        """GET_MAX_OFFSET: what the next message of a queue will get; 0 for an unknown queue."""
        _, high = self._range_of(command) or (0, 0)
        return reply(command, ext=headers.to_ext(offset=high))

    def min_offset(self, connection: Connection, command: Command) -> Command:
        """GET_MIN_OFFSET: the oldest message of a queue; -1 for an unknown queue."""
        low, _ = self._range_of(command) or (-1, 0)
        return reply(command, ext=headers.to_ext(offset=low))

    def search_offset(self, connection: Connection, command: Command) -> Command:
        """SEARCH_OFFSET_BY_TIMESTAMP: where a moment lies in a queue."""
        header = headers.parse(command.code, command.ext)
        is_upper = header.text("boundaryType").upper() == "UPPER"
        offset = self._store.reader.offset_by_time(
            header.text("topic"), header.integer("queueId"), header.integer("timestamp"), is_upper
        )
        return reply(command, ext=headers.to_ext(offset=offset))

    def earliest_store_time(self, connection: Connection, command: Command) -> Command:
        """GET_EARLIEST_MSG_STORETIME: when a queue's oldest message came; -1 when it has none."""
        header = headers.parse(command.code, command.ext)
        low, _ = self._range_of(command) or (0, 0)
        stored_ms = self._store.reader.store_time(header.text("topic"), header.integer("queueId"), low)
        return reply(command, ext=headers.to_ext(timestamp=-1 if stored_ms is None else stored_ms))

    def _index_state(self) -> dict[str, str]:
        # The index is brought up to date with every dispatch: what is dispatched can be found, as of now.
        return headers.to_ext(
            indexLastUpdateTimestamp=self._clock.now_ms(), indexLastUpdatePhyoffset=self._store.dispatched.offset
        )

    def _range_of(self, command: Command) -> tuple[int, int] | None:
        header = headers.parse(command.code, command.ext)
        return self._store.queue_range(header.text("topic"), header.integer("queueId"))


def _joined(found: list[memoryview]) -> bytes:
    """As many of the records as one reply holds, whole ones only."""
    taken: list[memoryview] = []
    total = 0
    for record in found:
        total += len(record)
        if taken and total > _BODY_BYTES_MAX:
            break
        taken.append(record)
    return b"".join(taken)
