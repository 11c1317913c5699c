"""Sending the rows of one task: in batches, pipelined, repeated if needed, until all are acknowledged.

    a busy broker, no master now                  tried again, at another queue if the row has none of its own
    no answer, or stored without its promise      at-least-once: sent again, with the same message id
                                                  transactional: the task fails, and its part with it; sent again it
                                                  could be there twice, and both would be committed
    refused for good                              a batch: its rows one by one; a row: to the dead-letter topic, or the
                                                  task fails with the broker's remark

Rows with the same sharding key are stored in their order, also when requests are refused or lost: the next one is sent
when the one before is stored (`sinklanes`).

`finish` returns when every row is acknowledged.  A message is tried for `sendTimeoutMs`.  `stored`, if given, is called
with the place of each row, and again when a row is sent again.  `refused`, if given, is called for each row that is
refused for good, and the others go on.
"""

from __future__ import annotations

import random
import time
import zlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

from gantry.client.connections.blockingsession import BlockingSession, master_of
from gantry.client.outgoing import BODY_BYTES_MAX, Outgoing
from gantry.client.producing.selector import Turn, by_key
from gantry.client.requests import questions
from gantry.client.requests.question import number
from gantry.clock import SystemClock
from gantry.errors import GantryError, RefusedError, UnreachableError
from gantry.leaves import properties
from gantry.leaves.frames import Command
from gantry.model.message import SYS_COMPRESSED, SYS_PREPARED, SYS_ZLIB
from gantry.model.route import MessageQueue
from gantry.wire.codes import ResponseCode
from gantry.wire.record import join_batch
from pyspark_gantrymq.sinkcolumns import Row
from pyspark_gantrymq.sinklanes import Lanes
from pyspark_gantrymq.sinkoptions import SinkOptions
from pyspark_gantrymq.sinkpipe import Pipe

_STORED_BUT = frozenset(
    {ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE}
)
_PASSING = frozenset({ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})
_PATIENCE_S = 15.0
_PAUSE_S = (0.02, 0.5)
Stored = Callable[[Row, MessageQueue, int], None]  # a row, its queue, its offset there
Refused = Callable[[Row, str], None]  # a row, the broker's remark
REASON, FROM_TOPIC, QUERY, BATCH = "GANTRY_SINK_REASON", "GANTRY_SINK_TOPIC", "GANTRY_SINK_QUERY", "GANTRY_SINK_BATCH"


class SinkError(GantryError):
    """Rows that could not be sent."""


@dataclass(slots=True)
class _Sent:
    """A request: its rows, and its deadline."""

    rows: list[Row]
    until: float
    queue: MessageQueue | None = None
    is_dead: bool = False  # sent to the dead-letter topic
    tries: int = 0


class SinkSender:
    """The sender of one task.  `extra`: packed properties of a half, added to every row; empty: no transaction."""

    def __init__(
        self,
        options: SinkOptions,
        query: str,
        batch: str,
        extra: bytes = b"",
        stored: Stored | None = None,
        refused: Refused | None = None,
    ) -> None:
        self.groups: set[str] = set()  # broker groups that acknowledged a row
        self.sent = 0
        self.dead = 0
        self._options = options
        self._origin = {QUERY: query, BATCH: batch}
        self._extra = extra
        self._stored = stored
        self._told_refused = refused
        self._session = BlockingSession(options.namesrv, None)
        self._pipes: dict[str, Pipe[_Sent]] = {}
        self._gathered: dict[str, list[Row]] = defaultdict(list)
        self._gathered_bytes: dict[str, int] = defaultdict(int)
        self._lanes = Lanes(1 if extra else options.batch_size, options.linger_bytes)
        self._again: list[_Sent] = []
        self._chance = random.Random()
        self._clock = SystemClock()
        self._turn = Turn(self._chance.randrange(1 << 16))
        self._error: SinkError | None = None

    def close(self) -> None:
        """Close the connections to brokers and name servers."""
        for pipe in self._pipes.values():
            pipe.close()
        self._session.close()

    def send(self, row: Row) -> None:
        """Take a row; it is sent now or together with others."""
        if row.fault:
            self._bury(row, row.fault)
        elif row.key:
            self._lanes.add(row)
        elif self._extra or row.is_delayed or row.broker or row.queue_id >= 0:
            self._go(self._request([row]))
        else:
            rows = self._gathered[row.topic]
            rows.append(row)
            self._gathered_bytes[row.topic] += len(row.body) + len(row.packed)
            is_long = self._gathered_bytes[row.topic] >= self._options.linger_bytes
            if is_long or len(rows) >= self._options.batch_size:
                self._flush(row.topic)
        if self._again:
            self._send_again()
        self._leave()
        while self._lanes.is_full:
            self._raise()
            for pipe in list(self._pipes.values()):
                pipe.wait()
            self._send_again()
            self._leave()
        self._raise()

    def finish(self) -> None:
        """Wait until every row is acknowledged; SinkError when one cannot be sent."""
        for topic in list(self._gathered):
            self._flush(topic)
        while any(self._pipes.values()) or self._again or self._lanes:
            for pipe in list(self._pipes.values()):
                pipe.drain()
            self._raise()
            self._send_again()
            self._leave()
        self._raise()

    def _leave(self) -> None:
        """Send rows of lanes without a request under way."""
        while self._error is None and (rows := self._lanes.take()):
            self._go(self._request(rows))

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _request(self, rows: list[Row], is_dead: bool = False) -> _Sent:
        return _Sent(rows, time.monotonic() + self._options.send_timeout_s, is_dead=is_dead)

    def _flush(self, topic: str) -> None:
        rows = self._gathered.pop(topic, [])
        self._gathered_bytes.pop(topic, None)
        if rows:
            self._go(self._request(rows))

    def _go(self, sent: _Sent) -> None:
        row = sent.rows[0]
        sent.tries += 1
        try:
            route = self._session.route(row.topic, new_topics=True)
            queues = route.queues_to_write(row.topic)
            if not queues:
                raise UnreachableError(f"topic {row.topic} has no queue that may be written to now")
            sent.queue = self._queue(row, queues)
            address = master_of(route, sent.queue)
            pipe = self._pipes.get(address)
            if pipe is None:
                pipe = self._pipes[address] = Pipe(address, self._options.in_flight, _PATIENCE_S, self._answered)
            pipe.put(questions.send(self._options.group, self._outgoing(sent), sent.queue).command, sent)
        except RefusedError as error:
            self._refused(sent, error.code, str(error))
        except (GantryError, OSError) as error:
            self._later(sent, str(error))

    def _queue(self, row: Row, queues: list[MessageQueue]) -> MessageQueue:
        own = [queue for queue in queues if not row.broker or queue.broker_name == row.broker]
        own = [queue for queue in own if row.queue_id < 0 or queue.queue_id == row.queue_id]
        if not own:
            where = f"{row.broker or 'any group'}, queue {row.queue_id if row.queue_id >= 0 else 'any'}"
            raise RefusedError(ResponseCode.INVALID_PARAMETER, f"topic {row.topic} has no such queue: {where}")
        return by_key(own, row.key) if row.key else self._turn.select(own)

    def _outgoing(self, sent: _Sent) -> Outgoing:
        row, now_ms = sent.rows[0], self._clock.now_ms()
        if len(sent.rows) > 1:
            body = join_batch([(one.flag, one.body, one.packed) for one in sent.rows])
            ids = tuple(one.message_id for one in sent.rows)
            pairs = properties.pack({"UNIQ_KEY": row.message_id})
            return Outgoing(row.topic, body, pairs, ids, now_ms, is_batch=True)
        flags = SYS_PREPARED if self._extra else 0
        body = row.body
        if sent.is_dead and len(body) > BODY_BYTES_MAX:
            # Readers get the same bytes; stored they may be small enough.
            body, flags = zlib.compress(body), flags | SYS_COMPRESSED | SYS_ZLIB
        return Outgoing(row.topic, body, row.packed + self._extra, (row.message_id,), now_ms, row.flag, flags)

    def _answered(self, sent: _Sent, reply: Command | None) -> None:
        assert sent.queue is not None
        if reply is None or reply.code in _STORED_BUT or questions.is_in_doubt(reply):
            what = "no answer" if reply is None else f"stored, and not kept for sure ({reply.remark})"
            if self._extra:
                self._fail(f"{sent.queue}: {what}; the part is given up, and Spark writes it again")
            else:
                self._later(sent, what)
        elif reply.code == ResponseCode.SUCCESS:
            self.groups.add(sent.queue.broker_name)
            self.sent += len(sent.rows)
            if self._stored is not None and not sent.is_dead:
                queue = replace(sent.queue, queue_id=number(reply, "queueId"))
                first = number(reply, "queueOffset")
                for nth, row in enumerate(sent.rows):
                    self._stored(row, queue, first + nth)
            self._free(sent.rows[0])
        else:
            self._refused(sent, reply.code, reply.remark or str(reply.code))

    def _refused(self, sent: _Sent, code: int, remark: str) -> None:
        if code in _PASSING or self._is_slave_s(code, remark):
            self._later(sent, remark)
        elif len(sent.rows) > 1 and sent.rows[0].key:
            self._lanes.back(sent.rows)
        elif len(sent.rows) > 1:
            self._again += [replace(sent, rows=[row], tries=0) for row in sent.rows]
        elif sent.is_dead:
            self._fail(f"the dead-letter topic {sent.rows[0].topic} refuses a row too: {remark}")
        else:
            self._bury(sent.rows[0], f"{code} {remark}")
            self._free(sent.rows[0])

    def _free(self, row: Row) -> None:
        if row.key:
            self._lanes.done(row)

    def _is_slave_s(self, code: int, remark: str) -> bool:
        """Return whether a refusal means that the broker is no master, or not yet; GantryMQ's brokers refuse so."""
        return code == ResponseCode.NO_PERMISSION and "master" in remark

    def _later(self, sent: _Sent, why: str) -> None:
        self._session.doubt(sent.rows[0].topic)
        if time.monotonic() >= sent.until:
            self._fail(f"topic {sent.rows[0].topic}: not sent within {self._options.send_timeout_s:g} s: {why}")
        else:
            self._again.append(sent)

    def _send_again(self) -> None:
        again, self._again = self._again, []
        if any(sent.tries for sent in again):
            first_s, longest_s = _PAUSE_S
            pause_s = min(longest_s, first_s * 2 ** min(8, max(sent.tries for sent in again)))
            time.sleep(pause_s * self._chance.uniform(0.5, 1.0))
        for sent in again:
            self._go(sent)

    def _bury(self, row: Row, why: str) -> None:
        """Send a row to the dead-letter topic: its body, its properties if they fit, and the reason."""
        if not self._options.dead_letters and self._told_refused is not None:
            self._told_refused(row, why)
            return
        if not self._options.dead_letters:
            self._fail(f"a row for topic {row.topic!r} is refused: {why}; set deadLetterTopic, or drop such rows")
            return
        said = properties.pack({**self._origin, REASON: _plain(why)[:1000], FROM_TOPIC: _plain(row.topic)[:200]})
        room = 30_000 - len(said)
        packed = row.packed if len(row.packed) <= room else properties.pack({"UNIQ_KEY": _plain(row.message_id)[:255]})
        packed = b"".join(pair + b"\x02" for pair in packed.split(b"\x02") if pair and not _is_delay(pair)) + said
        self.dead += 1
        letter = Row(self._options.dead_letters, row.body, packed, row.message_id, row.flag)
        self._go(self._request([letter], is_dead=True))

    def _fail(self, why: str) -> None:
        self._error = self._error or SinkError(why)


def _plain(text: str) -> str:
    return text.replace("\x01", " ").replace("\x02", " ") or "-"


def _is_delay(pair: bytes) -> bool:
    return pair.startswith((b"DELAY\x01", b"TIMER_"))
