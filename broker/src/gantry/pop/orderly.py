"""Orderly pops: which messages are delivered in order, and what is acknowledged of them.

The rules are those of `order` and `order_locks`, the table is `order_table`.  Every change is one record in the log,
and its answer waits until that is confirmed.  The batch locks its queue from the moment in which the record was
appended, so of two handlers that pop at the same time one gets the queue.

A pop with nothing to deliver changes nothing.  A pop that finds the head of a queue with all attempts used up moves it
to the group's dead-letter topic before it reads on: the batch without it and the copy are in one append, the batch
first.  When a crash keeps only the batch, the next start makes the copy before anything else (`begin`).  When nothing
can be appended, the head stays, and the group's offset too.

The group's consumer offset follows the committed offset of its batch, when that is confirmed and thus answered; behind
a new dead letter, when that is durable (`positions`).
A queue that was set back by an administrator has no batch any more: records from before the reset do not count.

`on_free` is called with a queue whose lock has ended, when there may be messages: waiting pops look again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gantry.append.redelivery import MoveToDeadLetters, again_of, popped_from
from gantry.errors import Refusal
from gantry.leaves.queues import Places
from gantry.model import names
from gantry.model.topic import TopicConfig
from gantry.pop import handle, order, order_records
from gantry.pop.book import Queue
from gantry.pop.handle import ORDERLY_QUEUE
from gantry.pop.order import OrderedBatch, OrderVerdict
from gantry.pop.order_locks import OrderLocks
from gantry.pop.order_records import Dead, OrderState
from gantry.pop.order_table import OrderTable
from gantry.pop.service import PopService
from gantry.pop.taking import FETCHES_MAX, SIFT_S, Catch, Cold, TakenMessages, Taker, Wish
from gantry.store.fetched import Fetched

if TYPE_CHECKING:
    from gantry.leaves.frames import Send
    from gantry.leaves.records import Record

_PIECE = 64
_QUEUES_AT_ONCE = 256
VISIBLE_AFTER_MS = 1000
"""How long what an ended owner had stays invisible: what it sent before it ended may still be on the way."""


class _Offer(NamedTuple):
    """What one queue has for a pop: the batch before, what was read of the queue, and which of it is delivered."""

    queue: Queue
    before: OrderedBatch | None
    found: TakenMessages
    taken: list[int]


class OrderlyPops:
    """Batches of a master.  Loop thread only."""

    def __init__(self, service: PopService, taker: Taker, table: OrderTable) -> None:
        self.on_free: Callable[[str, str, int], object] = lambda group, topic, queue_id: None
        self.table = table
        self.locks = OrderLocks(table, service.context.clock)
        self._service = service
        self._context = service.context
        self._taker = taker
        self._owed: Send | None = None  # a dead letter that a crash cut off

    def begin(self) -> None:
        """Take over what the table has, before the first request is served."""
        context = self._context
        for queue in self.table.queues():
            batch, (group, topic, queue_id) = self.table.get(queue), queue
            if batch is not None and context.offsets.query(group, topic, queue_id) < batch.committed:
                context.offsets.commit(group, topic, queue_id, batch.committed)
            self.locks.watch(queue, batch)
        self._owed = self._cut_off()

    def would_find(self, wish: Wish, attempt_id: str) -> bool:
        """Return whether a pop would find messages in a queue that no batch locks."""
        for at in self._taker.of_topic(wish):
            queue = wish.group, at[1], at[2]
            batch = self.table.get(queue)
            is_locked = batch is not None and self.locks.is_locked(queue, batch, attempt_id)
            if not is_locked and self._taker.would_find_at(wish, at, 0 if batch is None else batch.committed):
                return True
        return False

    def take(self, wish: Wish, attempt_id: str) -> Catch | Refusal:
        """Deliver messages to a pop in order, or say why there are none now."""
        clock = self._context.clock
        offers: list[_Offer] = []
        room, rest, fetches = wish.messages, 0, FETCHES_MAX
        cold: Cold = ()
        until_s = clock.monotonic() + SIFT_S
        for at in self._taker.of_topic(wish):
            if room <= 0 or fetches <= 0:
                break
            offer, used, needed = self._offer(wish, at, attempt_id, (room, fetches, until_s))
            fetches -= used
            cold = cold or needed
            if isinstance(offer, Refusal):
                if offers:
                    break
                return offer
            if offer is None:
                continue
            rest += max(0, offer.found.fetched.max_offset - offer.found.fetched.next_offset)
            offers.append(offer)
            room -= len(offer.taken)
        if not offers:
            return Catch((), rest=rest, cold=cold, is_unread=fetches <= 0)
        return self._deliver(wish, attempt_id, offers, rest)

    def _offer(
        self, wish: Wish, at: tuple[int, str, int], attempt_id: str, bounds: tuple[int, int, float]
    ) -> tuple[_Offer | Refusal | None, int, Cold]:
        """Look at one queue; return what it offers, how many fetches that took, and what has to be read first."""
        room, fetches, until_s = bounds
        queue = wish.group, at[1], at[2]
        batch = self.table.get(queue)
        position = self._taker.position(wish, at)
        if batch is not None:
            if self.locks.is_locked(queue, batch, attempt_id):
                return None, 0, ()
            times_max = self._context.groups.retry_times_max(wish.group)
            while times_max is not None and batch.has_used_up(attempt_id, times_max):
                cold = () if wish.may_wait else self._cold(queue, batch.committed)
                if cold:
                    return None, 0, cold
                refused = self._move_head(queue, batch)
                if refused is not None:
                    return refused, 0, ()
                batch = batch.give_up()
            position = max(position, batch.committed)
        elif not self.table.has_room(queue):
            self._context.say("orderly pops", f"{len(self.table)} queues are popped in order, which is the limit")
            return None, 0, ()
        ahead = 0 if batch is None else len(batch.acked)
        found, used = self._taker.read_from(wish, at, position, room + ahead, fetches, until_s)
        if found is not None and found.fetched.is_cold:
            return None, used, found.fetched.cold
        if found is None:
            return None, used, ()
        taken = order.take(found.offsets, batch, room)
        if not taken:
            self._service.positions.move(queue, found.fetched.next_offset)  # all of it is acknowledged
            return None, used, ()
        return _Offer(queue, batch, found, taken), used, ()

    def _cold(self, queue: Queue, offset: int) -> Cold:
        """Return the place of a message that has to be read from the disk first."""
        found = self._context.store.reader.candidates(queue[1], queue[2], offset, 1, 1, None, may_wait=False)
        return found.cold if found.is_cold else ()

    def _move_head(self, queue: Queue, batch: OrderedBatch) -> Refusal | None:
        """Move the head of a batch to the dead-letter topic; return why that is not possible now, else None."""
        record, changed = self._record(queue, batch.committed), batch.give_up()
        if record is None:
            refused = self._change(queue, changed)
            self._service.counts.lost += refused is None
            return refused
        return self._bury(queue, changed, record)

    def _record(self, queue: Queue, offset: int) -> Record | None:
        reader = self._context.store.reader
        place = reader.entry(queue[1], queue[2], offset)
        return None if place is None else reader.record(place)

    def _bury(self, queue: Queue, changed: OrderedBatch, record: Record) -> Refusal | None:
        """Append a batch and the dead letter that left it; then it counts."""
        state = self._state(queue, changed, Dead(record.queue_offset, record.log_offset))
        end = self._append([state, self._dead_letter(queue, record)])
        if isinstance(end, Refusal):
            return end
        self._service.positions.owe(queue)
        self._took(queue, changed, state)
        self._service.counts.dead += 1
        return None

    def _deliver(self, wish: Wish, attempt_id: str, offers: list[_Offer], rest: int) -> Catch | Refusal:
        """Append the new batches; then they count."""
        before = [offer.before.pop_ms for offer in offers if offer.before is not None]
        pop_ms = max([self._context.clock.now_ms(), *[one + 1 for one in before]])
        batches = [
            order.popped(one.before, one.found.offsets, one.taken, attempt_id, pop_ms, wish.invisible_ms, wish.owner)
            for one in offers
        ]
        states = [self._state(one.queue, batch, None) for one, batch in zip(offers, batches, strict=True)]
        end = self._append(states)
        if isinstance(end, Refusal):
            return end
        for offer, batch, state in zip(offers, batches, states, strict=True):
            self._took(offer.queue, batch, state)
            self._context.offsets.pulled.note(*offer.queue, batch.offsets[-1] + 1)
        taken = [self._given(offer) for offer in offers]
        counts = [
            one
            for offer, batch in zip(offers, batches, strict=True)
            for one in handle.count_info(offer.queue[2], offer.taken, batch.counts)
        ]
        return Catch(taken, pop_ms, ORDERLY_QUEUE, rest, counts=counts)

    def _given(self, offer: _Offer) -> TakenMessages:
        """Return what was read of a queue without the messages that are not delivered."""
        found = offer.found
        wanted = set(offer.taken)
        if len(wanted) == len(found.offsets):
            return found
        pairs = zip(found.offsets, found.fetched.places, strict=True)
        places = Places([place for offset, place in pairs if offset in wanted])
        buffers = [self._context.store.reader.bytes_at(*place) for place in places]
        old = found.fetched
        fetched = Fetched(
            old.status,
            offer.taken[-1] + 1,
            old.min_offset,
            old.max_offset,
            buffers,
            sum(map(len, buffers)),
            places=places,
        )
        return TakenMessages(found.flag, found.topic, found.queue_id, offer.taken[0], tuple(offer.taken), fetched)

    def acknowledge(self, queue: Queue, offsets: Sequence[int], pop_ms: int) -> list[OrderVerdict] | Refusal:
        """Acknowledge messages of the batch that was popped at this time; return what became of each.  What counts is
        in the log as far as it is written now.
        """
        batch = self.table.get(queue)
        if batch is None:
            return [self._of_no_batch(queue, offset) for offset in offsets]
        verdicts, changed = [], batch
        for offset in offsets:
            changed, verdict = changed.acknowledge(offset, pop_ms)
            verdicts.append(verdict)
        refused = None if changed is batch else self._change(queue, changed)
        if refused is not None:
            return refused
        counts = self._service.counts
        counts.acked += verdicts.count(OrderVerdict.TAKEN)
        counts.stale += len(verdicts) - verdicts.count(OrderVerdict.TAKEN)
        self._free(queue, changed)
        return verdicts

    def change(self, queue: Queue, offset: int, pop_ms: int, invisible_ms: int) -> tuple[OrderVerdict, int] | Refusal:
        """Make a message of the batch visible after this time; return what became of it, and when that is."""
        batch = self.table.get(queue)
        if batch is None:
            return self._of_no_batch(queue, offset), 0
        visible_ms = self._context.clock.time_of(batch.pop_ms) + invisible_ms
        changed, verdict = batch.change(offset, pop_ms, visible_ms)
        if verdict is OrderVerdict.TAKEN:
            refused = self._change(queue, changed)
            if refused is not None:
                return refused
            self._service.counts.changed += 1
            self._free(queue, changed)
        return verdict, visible_ms

    def give_up(self, queue: Queue, offset: int, pop_ms: int) -> OrderVerdict | Refusal | None:
        """Move a message of the batch that was popped at this time to the dead-letter topic; None: it is gone."""
        batch = self.table.get(queue)
        if batch is None:
            return self._of_no_batch(queue, offset)
        changed, verdict = batch.acknowledge(offset, pop_ms)
        if verdict is not OrderVerdict.TAKEN:
            return verdict
        record = self._record(queue, offset)
        if record is None:
            return None
        refused = self._bury(queue, changed, record)
        if refused is not None:
            return refused
        self._free(queue, changed)
        return verdict

    def tick(self) -> None:
        """Call `on_free` for the queues whose messages have become visible again."""
        if self._owed is not None:
            self._append([])
        for queue in self.locks.ended():
            self.on_free(*queue)

    def release(self, owner: str, group: str) -> Iterator[Refusal | None]:
        """Let what an ended owner has become visible soon; one step for each batch, which says why it cannot be.

        group: empty for all groups.  Its handles are good until the messages are delivered again.
        """
        for number, queue in enumerate(self.table.queues(), 1):
            batch = self.table.get(queue)
            if batch is not None and batch.owner == owner and batch.outstanding and group in ("", queue[0]):
                now_ms = self._context.clock.time_of(batch.pop_ms)
                yield self._change(queue, batch.released(now_ms + VISIBLE_AFTER_MS))
            elif number % _QUEUES_AT_ONCE == 0:
                yield None

    def forget(self, is_gone: Callable[[Queue], bool]) -> None:
        """Forget batches of a deleted topic or group."""
        self.table.forget(is_gone)

    def tidy(self) -> Iterator[None]:
        """Forget, in slices, what nobody used for a day, and what is gone."""
        return self.table.tidy(self._is_gone, self._context.clock.now_ms())

    def _is_gone(self, queue: Queue) -> bool:
        group, name, queue_id = queue
        topic = self._context.topics.get(name)
        return topic is None or queue_id >= topic.read_queues or self._context.groups.get(group) is None

    def _of_no_batch(self, queue: Queue, offset: int) -> OrderVerdict:
        return OrderVerdict.DONE if offset < (self._service.positions.of(queue) or 0) else OrderVerdict.STALE

    def _change(self, queue: Queue, batch: OrderedBatch) -> Refusal | None:
        state = self._state(queue, batch, None)
        end = self._append([state])
        if isinstance(end, Refusal):
            return end
        self._took(queue, batch, state)
        return None

    def _append(self, sends: Sequence[Send]) -> int | Refusal:
        topics = self._context.topics
        if topics.get(names.POP_ORDER_TOPIC) is None:
            topics.ensure(TopicConfig(names.POP_ORDER_TOPIC, read_queues=1, write_queues=1))
        owed, self._owed = self._owed, None
        end = self._service.append(sends if owed is None else [owed, *sends])
        if isinstance(end, Refusal):
            self._owed = owed
        elif owed is not None:
            self._service.counts.dead += 1
        return end

    def _state(self, queue: Queue, batch: OrderedBatch, dead: Dead | None) -> Send:
        store, clock = self._context.store, self._context.clock
        return order_records.message(OrderState(queue, batch, dead), store.store_host, clock.now_ms())

    def _took(self, queue: Queue, batch: OrderedBatch, state: Send) -> None:
        """Let a batch count whose record was appended."""
        self.table.appended(queue, batch, state.log_offset)
        self._service.positions.save_later(queue, batch.committed, is_done=True)
        self.locks.watch(queue, batch)

    def _free(self, queue: Queue, batch: OrderedBatch) -> None:
        """Call `on_free` when nothing of the batch is hidden any more."""
        if not self.locks.is_locked(queue, batch):
            self.on_free(*queue)

    def _dead_letter(self, queue: Queue, record: Record) -> Send:
        topics, target = self._context.topics, names.dlq_topic(queue[0])
        topics.ensure(TopicConfig(target, read_queues=1, write_queues=1))
        batch = self.table.get(queue)
        popped_ms = 0 if batch is None else batch.pop_ms
        copy = again_of(record, popped_from(record, queue[1]), MoveToDeadLetters(), target, popped_ms)
        copy.prepared_offset = record.log_offset
        return copy

    def _cut_off(self) -> Send | None:
        """Return the dead letter that the last record in the log names, when a crash cut it off."""
        last, reader = self.table.last_dead, self._context.store.reader
        if last is None or last.state.dead is None:
            return None
        queue, log_offset = last.state.queue, last.state.dead.log_offset
        target = names.dlq_topic(queue[0])
        at = reader.first_behind(target, 0, last.log_offset)
        while places := reader.places(target, 0, at, _PIECE):
            found = [reader.record(place) for place in places]
            if any(record is not None and record.prepared_offset == log_offset for record in found):
                return None
            at += len(places)
        record = reader.record_at(log_offset)
        if record is None or record.topic != queue[1]:
            self._service.counts.lost += 1
            return None
        return self._dead_letter(queue, record)
