"""The table of orderly pops over a real store: its records, its file, and what a start makes of both."""

from __future__ import annotations

from pathlib import Path

import pytest

from gantry.errors import StoreError
from gantry.leaves import frames
from gantry.model import names
from gantry.pop import order, order_records
from gantry.pop.order import OrderedBatch
from gantry.pop.order_records import Dead, OrderState
from gantry.pop.order_table import OrderTable
from gantry.store.store import Store
from testkit.memory_state import MemoryState
from testkit.simclock import SimClock
from testkit.smallstore import HOST, message, opened, small

QUEUE = ("g", "orders", 0)


class Play:
    def __init__(self, folder: Path, messages: int = 10) -> None:
        self.clock = SimClock()
        self.store: Store = opened(small(folder), self.clock)
        self.store.append([message() for _ in range(messages)])
        self.state = MemoryState()
        self.resets: dict[tuple[str, str, int], int] = {}
        self.begin()

    def begin(self, **bounds: int) -> None:
        """A table as a start makes it."""
        self.table = OrderTable(self.store, self.state, lambda *queue: self.resets.get(queue, -1), **bounds)
        self.store.on_dispatched(self.table.on_dispatched)
        for _ in self.table.catch_up():
            pass

    def change(self, batch: OrderedBatch, dead: Dead | None = None, queue: tuple[str, str, int] = QUEUE) -> None:
        send = order_records.message(OrderState(queue, batch, dead), HOST, 0)
        self.store.append([send])
        self.table.appended(queue, batch, send.log_offset)

    def flush(self) -> None:
        self.clock.advance(60_000)
        for _ in self.store.tick(self.clock.now_ms()) or ():
            pass
        assert self.store.flushed.offset == self.store.dispatched.offset

    def save(self) -> None:
        """What the job does in one period."""
        for _ in self.table.saving():
            pass


def batch_of(*offsets: int, pop_ms: int = 1_000) -> OrderedBatch:
    return order.popped(None, offsets, offsets, "", pop_ms, 100)


def test_a_start_has_the_newest_record_of_each_queue_without_any_document(tmp_path: Path) -> None:
    play = Play(tmp_path)
    play.change(batch_of(0, 1))
    acked, _ = batch_of(0, 1).acknowledge(1, 1_000)
    play.change(acked)
    play.change(batch_of(3), queue=("h", "orders", 0))
    play.begin()
    assert play.table.get(QUEUE) == acked and play.table.get(("h", "orders", 0)) == batch_of(3)


def test_a_start_reads_only_the_records_behind_the_document(tmp_path: Path) -> None:
    play = Play(tmp_path)
    play.change(batch_of(0, 1))
    play.save()
    play.flush()
    play.save()
    play.change(batch_of(2, 3))
    document = play.state.load()
    assert document is not None and document["gantryNext"] == 1
    assert document["table"]["orders@g"]["0"]["o"] == [0, 1]
    play.begin()
    assert play.table.get(QUEUE) == batch_of(2, 3)


def test_what_is_not_durable_is_not_in_the_document(tmp_path: Path) -> None:
    play = Play(tmp_path)
    play.change(batch_of(0, 1))
    play.save()
    play.save()
    assert play.store.flushed.offset < play.store.dispatched.offset and play.state.load() is None
    play.flush()
    play.save()
    assert play.state.load() is not None


def test_the_last_record_is_read_again_while_its_dead_letter_may_be_missing(tmp_path: Path) -> None:
    play = Play(tmp_path)
    play.change(batch_of(1), Dead(0, 77))
    play.table.save_now()
    play.begin()
    assert play.table.last_dead is not None and play.table.last_dead.state.dead == Dead(0, 77)
    play.change(batch_of(5), queue=("h", "orders", 0))  # behind it: the run of the other is complete
    play.begin()
    assert play.table.last_dead is None


def test_batches_of_a_deleted_topic_do_not_come_back(tmp_path: Path) -> None:
    play = Play(tmp_path)
    play.change(batch_of(0, 1))
    play.table.save_now()
    play.store.delete_queues("orders")
    play.begin()
    assert play.table.get(QUEUE) is None
    play.state = MemoryState()
    play.begin()
    assert play.table.get(QUEUE) is None


def test_a_document_of_a_longer_log_says_nothing_about_messages_that_are_not_there(tmp_path: Path) -> None:
    play = Play(tmp_path, messages=2)
    theirs = {"popTime": 5, "i": 60_000, "o": [1, 1], "cm": 3, "l": 5}
    play.state = MemoryState({"table": {"orders@g": {"0": theirs}}})
    play.begin()
    assert play.table.get(QUEUE) is None
    play.state = MemoryState({"table": {"orders@g": {"0": theirs | {"o": [0, 1]}}}})
    play.begin()
    batch = play.table.get(QUEUE)
    assert batch is not None and batch.committed == 2


def test_a_document_of_a_log_that_lost_its_end_gives_way_to_the_records_that_are_left(tmp_path: Path) -> None:
    """As at a slave that cut what its new master does not have."""
    play = Play(tmp_path)
    acked, _ = batch_of(0, 1).acknowledge(1, 1_000)
    play.change(batch_of(0, 1))
    play.change(acked)
    play.change(batch_of(5), queue=("h", "orders", 0))
    play.table.save_now()
    document = play.state.load()
    assert document is not None
    cut = {"gl": play.store.written.offset + 100}
    document["table"]["orders@g"]["0"] = batch_of(2, 3).to_json() | cut  # type: ignore[index]
    document["gantryNext"] = 4
    play.state.save(document)
    play.begin()
    assert play.table.get(QUEUE) == acked
    assert play.table.get(("h", "orders", 0)) == batch_of(5)


@pytest.mark.parametrize("records", [0, 2])
def test_a_document_of_a_log_that_lost_its_end_does_not_count_when_the_log_has_grown_again(
    tmp_path: Path, records: int
) -> None:
    """The process ends before the table was saved again."""
    play = Play(tmp_path, messages=0 if records == 0 else 10)
    for _ in range(records):
        play.change(batch_of(0))
    done, _ = batch_of(0, 1, 2).acknowledge(2, 1_000)
    cut = {"gl": play.store.written.offset + 100}
    play.state.save({"table": {"orders@g": {"0": done.to_json() | cut}}, "gantryNext": records + 1})
    play.begin()
    play.store.append([message(body=b"." * 1_000) for _ in range(3)])
    assert play.store.written.offset > cut["gl"]
    play.begin()
    assert play.table.get(QUEUE) == (batch_of(0) if records else None)


def test_idle_batches_and_those_of_queues_that_are_gone_are_forgotten_and_the_table_is_bounded(tmp_path: Path) -> None:
    play = Play(tmp_path)
    play.begin(queues_max=2)
    play.change(batch_of(0), queue=("a", "orders", 0))
    play.change(batch_of(0, pop_ms=2 * order.IDLE_MS), queue=("b", "orders", 0))
    assert not play.table.has_room(QUEUE) and play.table.has_room(("a", "orders", 0))
    for _ in play.table.tidy(lambda queue: False, 2 * order.IDLE_MS):
        pass
    assert play.table.queues() == [("b", "orders", 0)]
    play.table.forget(lambda queue: queue[0] == "b")
    assert play.table.queues() == []


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b'{"t":"T"}',
        b'{"t":"T","c":"g","q":0,"b":{"o":[3,1,1]}}',
        b'{"t":"T","c":"g","q":0,"b":{}}',
        b'{"t":1,"c":"g","q":0}',
    ],
)
def test_a_damaged_record_is_passed_over(tmp_path: Path, text: bytes) -> None:
    play = Play(tmp_path)
    play.change(batch_of(0, 1))
    properties = b"POP_ORDER\x01%b\x02" % text
    play.store.append([frames.Send(topic=names.POP_ORDER_TOPIC, born_host=HOST, properties=properties, body=b"x")])
    assert play.table.get(QUEUE) == batch_of(0, 1) and play.table.unreadable == 1


def test_a_damaged_document_stops_the_start_and_names_the_queue(tmp_path: Path) -> None:
    play = Play(tmp_path)
    play.state = MemoryState({"table": {"orders@g": {"0": {"o": [5, 1, 1]}}}})
    with pytest.raises(StoreError, match="orders@g queue 0: o is not a list of at most 64 ascending offsets; "):
        play.begin()


def test_a_record_reads_back() -> None:
    for state in (OrderState(QUEUE, batch_of(5, 7)), OrderState(QUEUE, batch_of(6), Dead(5, 900))):
        assert order_records.read(order_records.message(state, HOST, 3).properties) == state


def test_a_batch_from_before_a_reset_does_not_count(tmp_path: Path) -> None:
    play = Play(tmp_path)
    play.change(batch_of(0, 1))
    play.resets[QUEUE] = play.store.written.offset
    assert play.table.get(QUEUE) is None
    play.begin()
    assert play.table.get(QUEUE) is None
    play.change(batch_of(0, 1))
    assert play.table.get(QUEUE) == batch_of(0, 1)


@pytest.mark.parametrize("how", ["tidied", "saved"])
def test_a_batch_from_before_a_reset_does_not_count_when_the_place_of_the_reset_is_forgotten(
    tmp_path: Path, how: str
) -> None:
    play = Play(tmp_path)
    acked, _ = batch_of(0, 1).acknowledge(1, 1_000)  # it would be kept for ever, because of what is acknowledged
    play.change(acked)
    play.resets[QUEUE] = play.store.written.offset
    if how == "tidied":
        for _ in play.table.tidy(lambda queue: False, 0):
            pass
    else:
        play.table.save_now()
        play.begin()
    play.resets.clear()
    assert play.table.get(QUEUE) is None
