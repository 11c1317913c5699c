from __future__ import annotations

import asyncio
import itertools

import pytest

from gantry.errors import StoreError
from gantry.store import keysearch
from gantry.store.indexfile import WALKED_AT_ONCE
from gantry.transaction import lookups
from gantry.wire.codes import ResponseCode
from testkit.transactionplay import COMMIT, ROLLBACK, Half, TransactionPlay

MISSING = Half(0, 1_000_000, 0, "none")
COUNT = 800


def chained() -> TransactionPlay:
    """A play in which all keys stand in one chain of the index file."""
    play = TransactionPlay(index_slots=1, index_entries=5000)
    for number in range(COUNT):
        play.end(play.half(), COMMIT if number else ROLLBACK)
    for _ in range(100):
        play.clock.advance(1000)
        play.store.tick(play.clock.now_ms())
    return play


async def turns_until_answered(play: TransactionPlay, opaque: int) -> tuple[int, int]:
    """How many turns of the loop passed before the answer, and its code."""
    for turns in itertools.count():
        play.turn()
        answers = play.answers()
        if opaque in answers:
            return turns, answers[opaque]
        await asyncio.sleep(0)
    raise AssertionError


async def test_the_end_of_a_missing_half_gives_way_while_it_walks_a_chain() -> None:
    play = chained()
    turns, code = await turns_until_answered(play, play.end_later(MISSING, COMMIT))
    assert code == ResponseCode.SYSTEM_ERROR
    assert turns >= COUNT // WALKED_AT_ONCE


async def test_an_end_whose_outcome_takes_too_long_to_find_is_busy_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = chained()
    monkeypatch.setattr(keysearch, "STEPS_MAX", 2)
    end = play.store.written.offset
    assert await turns_until_answered(play, play.end_later(MISSING, COMMIT)) == (1, ResponseCode.SYSTEM_BUSY)
    assert play.settling.counts.refused["long search"] == 1
    assert play.store.written.offset == end


async def test_an_outcome_that_only_the_log_has_counts_wherever_it_stands_in_the_chain() -> None:
    play = chained()
    first = Half(0, 0, next(play.records("RMQ_SYS_TRANS_HALF_TOPIC")).log_offset, "")
    play.book.map._forget(COUNT)
    assert not play.settling.is_known(0)
    turns, code = await turns_until_answered(play, play.end_later(first, COMMIT))
    assert (turns > 0, code) == (True, ResponseCode.TRANSACTION_SHOULD_ROLLBACK)


async def test_so_many_searches_run_at_a_time_and_more_are_busy() -> None:
    play = chained()
    for _ in range(lookups._SEARCHES_MAX):
        play.end_later(MISSING, COMMIT)
    assert play.end(MISSING, COMMIT) == ResponseCode.SYSTEM_BUSY
    for _ in range(COUNT):
        await asyncio.sleep(0)
    assert await turns_until_answered(play, play.end_later(MISSING, COMMIT)) != (0, ResponseCode.SYSTEM_BUSY)


async def test_a_search_that_fails_makes_room_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    play = chained()

    def failing(*_: object) -> keysearch.Steps[None]:
        yield None
        raise StoreError("the index cannot be read")

    loop = asyncio.get_running_loop()
    failed: list[BaseException] = []
    loop.set_exception_handler(lambda _, context: failed.append(context["exception"]))
    with monkeypatch.context() as patched:
        patched.setattr(lookups, "outcome_in_log", failing)
        for _ in range(lookups._SEARCHES_MAX):
            play.end_later(MISSING, COMMIT)
        play.turn()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert len(failed) == lookups._SEARCHES_MAX
    assert await turns_until_answered(play, play.end_later(MISSING, COMMIT)) != (0, ResponseCode.SYSTEM_BUSY)
