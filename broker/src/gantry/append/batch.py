"""Appending a run: the broker's additions to each message, one append, one entry of parked replies.

A run is what one connection sent in one go and `admit` let pass.  Its messages stand in the log in the order in
which they came.  Plain runs of several connections that came in the same turn of the loop are appended as one, for
one write costs nearly the same whether it holds one record or fifty; each connection gets its own replies.  Messages
of one batch request are appended `together`: all in one segment, all or none, answered by one reply.

What is added to a message here, as RocketMQ's broker does it: the address it came from, a UNIQ_KEY if its producer
gave none, and the properties MSG_REGION, TRACE_ON and CLUSTER.  A message that was received and is sent again
has those three already; they are replaced, not repeated.  POP_CK, which only a broker may set, is taken out.

On a Refusal nothing of the run is in the log; `writing` says which there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gantry.append.acks import Acks
from gantry.append.admit import OURS_BYTES_MAX, PROPERTIES_BYTES_MAX, WriteGate
from gantry.append.writing import append_run
from gantry.errors import Refusal
from gantry.leaves import frames, properties, runs

if TYPE_CHECKING:
    from gantry.leaves.frames import Send
    from gantry.store.store import Store
    from gantry.transport.connection import Connection

Run = tuple["Connection", list["Send"]]
Halves = tuple["Connection", list["Send"], list[int]]
"""A run of messages that were readdressed (halves, delayed ones), and the queues that their replies name."""

Handles = Callable[[Sequence["Send"]], Sequence[bytes]]
"""Returns the recall handle of each stored message, empty for those that have none."""

_REGION_MARK = b"MSG_REGION\x01"
_OURS = frozenset({b"MSG_REGION", b"TRACE_ON", b"CLUSTER", b"POP_CK"})


@dataclass(frozen=True, slots=True)
class MessageStamp:
    """The broker's own values in every message and reply: region, cluster, address."""

    cluster: str
    region: str
    store_host: bytes

    @property
    def suffix(self) -> bytes:
        """Return the encoded properties that are added to every message."""
        return properties.pack({"MSG_REGION": self.region, "TRACE_ON": "true", "CLUSTER": self.cluster})

    @property
    def properties_bytes_max(self) -> int:
        """Return how many bytes a client's properties may have so that ours fit, now and later."""
        return PROPERTIES_BYTES_MAX - len(self.suffix) - OURS_BYTES_MAX


class Appender:
    """Appends producers' messages to the log; there is no other way for them."""

    def __init__(
        self, store: Store, acks: Acks, gate: WriteGate, marks: MessageStamp, next_unique_key: Callable[[], str]
    ) -> None:
        self.messages = 0
        self.bytes = 0  # of records, blanks included
        self.written = store.written  # where the next record begins
        self._store = store
        self._acks = acks
        self._gate = gate
        self._marks = marks
        self._suffix = marks.suffix
        self._next_unique_key = next_unique_key

    def append_plain(self, gathered: Sequence[Run]) -> Refusal | None:
        """Append runs as they were decoded, as one; on a refusal nothing is in the log and nothing is answered."""
        end = self._append(self._sealed(gathered), is_scanned=True)
        if isinstance(end, Refusal):
            return end
        self._answer_all(end, gathered)
        return None

    def append_run(
        self,
        connection: Connection,
        sends: list[Send],
        answered_queues: Sequence[int] | None = None,
        handles: Handles | None = None,
    ) -> Refusal | None:
        """Append messages that want a reply each; on a refusal none is in the log and none has been answered.

        answered_queues: what the replies say about the queues, where it is not what the log says (half and delayed
        messages).  handles: the recall handles that the replies name.
        """
        end = self._append(self._sealed([(connection, sends)]))
        if isinstance(end, Refusal):
            return end
        if answered_queues is not None:
            for send, queue_id in zip(sends, answered_queues, strict=True):
                send.queue_id = queue_id
        self._answer_all(end, [(connection, sends)], handles)
        return None

    def append_halves(self, gathered: Sequence[Halves], handles: Handles | None = None) -> Refusal | None:
        """Append readdressed messages of several connections as one run; handles and refusals as in `append_run`."""
        plain = [(connection, sends) for connection, sends, _ in gathered]
        end = self._append(self._sealed(plain), is_scanned=True)
        if isinstance(end, Refusal):
            return end
        for _, sends, queues in gathered:
            for send, queue_id in zip(sends, queues, strict=True):
                send.queue_id = queue_id
        self._answer_all(end, plain, handles)
        return None

    def _answer_all(self, end: int, gathered: Sequence[Run], handles: Handles | None = None) -> None:
        waits, count = self._acks.waits(end), 0
        for connection, sends in gathered:
            later = sends
            if waits and (hasty := [send for send in sends if send.traits & properties.TRAIT_WAIT_FALSE]):
                # RocketMQ: WAIT=false asks for an answer before flush and slaves have it.
                later = [send for send in sends if not send.traits & properties.TRAIT_WAIT_FALSE]
                connection.write(self._replies(hasty, handles))
            replies = self._replies(later, handles)
            if replies and waits:
                self._acks.park(end, connection, replies, len(later))
            elif replies:
                connection.write(replies)
                count += len(later)
        self._acks.not_parked(count)

    def append_together(
        self, connection: Connection, request: Send, sends: Sequence[Send], is_scanned: bool = False
    ) -> Refusal | None:
        """Append the messages of one request, all or none, and answer it once; is_scanned: see `Store.append`."""
        end = self._append(self._sealed([(connection, sends)]), together=True, is_scanned=is_scanned)
        if isinstance(end, Refusal):
            return end
        if not request.is_oneway:
            joint = frames.encode_joint_reply(request.opaque, sends, self._marks.store_host, self._marks.region)
            self._acks.park(end, connection, joint, len(sends))
        return None

    def _sealed(self, gathered: Sequence[tuple[Connection, Sequence[Send]]]) -> list[Send]:
        return runs.seal(gathered, self._suffix, _REGION_MARK, self._put_in_order)

    def _append(self, sends: Sequence[Send], together: bool = False, is_scanned: bool = False) -> int | Refusal:
        before = self._store.written.offset
        end = append_run(self._store, self._gate, sends, together=together, is_scanned=is_scanned)
        if isinstance(end, Refusal):
            return end
        self.messages += len(sends)
        self.bytes += end - before
        return end

    def _put_in_order(self, send: Send) -> bytes:
        """Return the message's properties without ours, closed, with a unique key."""
        pairs = send.properties.split(properties.PAIR_END)
        kept = [pair for pair in pairs if pair and pair.partition(properties.NAME_END)[0] not in _OURS]
        if not send.traits & properties.TRAIT_UNIQUE_KEY:
            send.unique_key = self._next_unique_key().encode()
            send.traits |= properties.TRAIT_UNIQUE_KEY
            kept.append(b"UNIQ_KEY\x01" + send.unique_key)
        send.traits &= ~(properties.TRAIT_POP_CK | properties.TRAIT_ENDS_OPEN)
        return properties.PAIR_END.join(kept) + properties.PAIR_END

    def _replies(self, sends: Sequence[Send], handles: Handles | None = None) -> bytearray:
        found = () if handles is None else handles(sends)
        return frames.encode_send_replies(sends, self._marks.store_host, self._marks.region, found)
