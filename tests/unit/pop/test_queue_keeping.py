"""Messages of HTTP queues whose segment is about to go, or whose life may be over while they are on the disk."""

from __future__ import annotations

import pytest

from gantry.append.writing import GATE_DISK_FULL
from gantry.errors import Refusal
from gantry.model import httpqueue
from gantry.model.subscription import GroupConfig
from gantry.model.topic import TopicConfig
from gantry.pop import keeping, records
from gantry.store.settings import Flush
from gantry.wire.codes import ResponseCode
from testkit.popplay import pop_request
from testkit.popstoreplay import PopPlay
from testkit.queueplay import GROUP, QUEUE, RETRY, QueuePlay


def with_a_message() -> PopPlay:
    play = PopPlay(Flush.ASYNC)
    play.groups.put(GroupConfig(GROUP))
    play.topics.put(TopicConfig(QUEUE, 1, 1, attributes={httpqueue.ID: "1" * 16}))
    play.send(b"m", QUEUE)
    return play


def test_messages_that_are_moved_before_any_message_was_popped_come_into_the_retry_topic() -> None:
    """Under ASYNC_FLUSH the record of the move is in its revive queue before the append returns."""
    play = with_a_message()
    assert play.pops.keeper.move(QUEUE, (QUEUE, 0), play.store.written.offset) == 1
    for _ in range(10):
        play.pass_ms(1_000)
    assert play.visible(RETRY) == [b"m"]
    assert play.pops.service.book.open == 0


def test_a_move_is_stored_on_a_full_disk_although_another_lease_has_ended_behind_it() -> None:
    play = with_a_message()
    for number in range(records.REVIVE_QUEUES):  # of each revive queue one
        play.send(b"m%d" % number)
        assert play.ask_now(pop_request(1, 100)).code == 0
    assert play.pops.keeper.move(QUEUE, (QUEUE, 0), play.store.written.offset) == 1
    play.clock.advance(500)
    for _ in play.service.deliver() or ():
        pass
    play.gate.shut(GATE_DISK_FULL, Refusal(ResponseCode.SYSTEM_ERROR, "the disk is full"))
    for _ in play.pops.reviver.run():
        pass
    assert play.visible(RETRY) == [b"m"]
    assert play.pops.service.book.open == records.REVIVE_QUEUES


def test_a_look_reads_pieces_of_a_bounded_size_and_waits_when_they_do_not_stay_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keeping, "_READ_BYTES_MAX", 5_000)
    play = QueuePlay(life_s=1_000, warm_bytes=1)
    for _ in range(8):
        play.put(b"x" * 2_000)
    begun: list[int] = []
    bring_in = play.store.bring_in

    def counted(places, done, ahead_bytes=0) -> None:  # type: ignore[no-untyped-def]
        begun.append(sum(size for _, size in places))
        bring_in(places, done, ahead_bytes)

    monkeypatch.setattr(play.store, "bring_in", counted)
    for _ in range(12):
        play.pass_durably(1_000)
    assert 1 <= len(begun) <= 2, "a look every ten seconds"
    assert max(begun) <= 5_000 and not play.pops.keeper._reading


def test_leases_that_found_no_room_end_when_there_is_room() -> None:
    play = with_a_message()
    play.send(b"popped")
    assert play.ask_now(pop_request(1, 100)).code == 0
    play.gate.shut(GATE_DISK_FULL, Refusal(ResponseCode.SYSTEM_ERROR, "the disk is full"))
    play.clock.advance(500)
    for _ in range(5):
        for _ in play.pops.reviver.run():
            pass
        play.clock.advance(1_000)
    assert play.pops.service.book.open == 1
    play.gate.reopen(GATE_DISK_FULL)
    for _ in range(20):
        play.pass_ms(1_000)
    assert play.pops.service.book.open == 0
