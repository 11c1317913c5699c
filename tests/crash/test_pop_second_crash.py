"""Popped messages over more than one fault: a reset or a clock set back before a crash, a log that a power cut made
shorter than what was saved about it.
"""

from __future__ import annotations

import asyncio

import pytest

from gantry.metadata.offsets import Offsets
from gantry.model import names
from gantry.store.settings import Flush
from gantry.wire.codes import RequestCode
from gantry.wire.command import request
from testkit.memory_state import MemoryState
from testkit.popplay import ack_request, batch_ack_request, change_request, pop_request, popped
from testkit.popstoreplay import PopPlay
from testkit.simclock import SimClock


def sent(count: int) -> PopPlay:
    """A broker with durable messages m0, m1, ... of one queue."""
    play = PopPlay(Flush.SYNC)
    for number in range(count):
        play.send(b"m%d" % number)
    play.flush()
    return play


@pytest.mark.parametrize("how", ["change", "renewal"])
def test_a_lease_that_goes_on_after_a_reset_does_not_undo_the_reset(how: str) -> None:
    play = sent(6)
    assert not play.ask_now(batch_ack_request(popped(play.ask_now(pop_request(5))))).body
    (last,) = popped(play.ask_now(pop_request(1, 300)))
    play.offsets.reset("workers", "orders", 0, 1, marks=False)
    play.offsets.file.save_now()
    if how == "change":
        assert play.ask_now(change_request(last, 60_000)).code == 0
    else:
        play.pops.reviver.renews = lambda lease, now_ms: now_ms + 60_000
        for _ in range(20):
            play.pass_ms(100)
            play.flush()
    play.kill()
    again = popped(play.ask_now(pop_request()))
    assert [one.body for one in again] == [b"m%d" % number for number in range(1, 6)]


def test_an_acknowledged_lease_of_a_later_clock_hides_no_newer_one_after_a_crash() -> None:
    play = sent(1)
    (first,) = popped(play.ask_now(pop_request(1, 60_000)))
    assert play.ask_now(ack_request(first)).ext["gantryVerdict"] == "open"
    play.offsets.reset("workers", "orders", 0, 0, marks=False)
    play.clock.jump(-10_000)
    (again,) = popped(play.ask_now(pop_request(1, 60_000)))
    play.kill()
    assert play.pops.service.book.open == 1
    assert play.ask_now(ack_request(again)).ext["gantryVerdict"] == "open"


def test_leases_in_a_log_that_a_power_cut_made_shorter_are_not_those_of_a_deleted_group() -> None:
    play = sent(1)
    for _ in range(8):
        play.send(b"x" * 4_000)  # never flushed
    play.groups.delete("workers")
    play.offsets.file.save_now()
    play.crash()
    (one,) = popped(play.ask_now(pop_request(1)))
    play.kill()
    assert play.ask_now(ack_request(one)).ext["gantryVerdict"] == "open"


def test_what_an_owner_acknowledged_in_the_turn_in_which_it_ends_does_not_come_again() -> None:
    play = sent(2)
    first, second = popped(play.ask_now(pop_request(gantryOwner="c1")))
    play.give(ack_request(first))
    asyncio.run(play.pops.owners.end(play.connection, request(RequestCode.END_POP_OWNER, {"clientId": "c1"})))
    play.turn()
    play.flush()
    assert "open" in [reply.ext.get("gantryVerdict") for reply in play.connection.take()]
    for _ in range(30):
        play.pass_ms(100)
        play.flush()
    assert [one.body for one in popped(play.ask_now(pop_request()))] == [second.body]


def test_a_revive_queue_that_is_shorter_than_its_offset_is_handled_from_its_next_record_on() -> None:
    offsets = Offsets(MemoryState(), SimClock())
    offsets.commit(names.REVIVE_GROUP, "rmq_sys_REVIVE_LOG_c", 0, 15)
    offsets.commit("workers", "orders", 0, 15)
    offsets.bound(lambda topic, queue_id: 10)
    assert offsets.query(names.REVIVE_GROUP, "rmq_sys_REVIVE_LOG_c", 0) == 9  # the last one that was handled
    assert offsets.query("workers", "orders", 0) == 10
