"""Who administers transactions looks at old records, never with a page fault on the loop, and never for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gantry.leaves import frames, records
from gantry.store.commitlog import CommitLog
from gantry.transaction.checker import CheckPolicy
from gantry.wire import bodies
from gantry.wire.codes import RequestCode
from testkit.requests import request
from testkit.transactionplay import HOST, ROLLBACK, Half, TransactionPlay

_MINUTE_MS = 60_000


class Cold:
    """What is in the log now is cold, and to touch what of it was not brought in is an error."""

    def __init__(self, play: TransactionPlay, monkeypatch: pytest.MonkeyPatch) -> None:
        self.brought: dict[int, int] = {}
        self.is_watching = True
        self._end = play.store.written.offset
        self._bring_in = play.store.bring_in
        play.store.bring_in = self.bring_in  # type: ignore[method-assign,assignment]
        for name in ("record", "slice", "message", "around"):
            self._watch(name, monkeypatch)

    def bring_in(self, places: list[tuple[int, int]], done: Callable[[], None]) -> None:
        for log_offset, size in places:
            self.brought[log_offset] = max(self.brought.get(log_offset, 0), size)
        self._bring_in(places, done)

    def _watch(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        real = getattr(CommitLog, name)

        def read(log: CommitLog, log_offset: int, size: int, *more: int) -> object:
            is_there = log_offset >= self._end or self.brought.get(log_offset, 0) >= (1 if name == "around" else size)
            assert is_there or not size or not self.is_watching, f"{name}: {size} bytes at {log_offset} are cold"
            return real(log, log_offset, size, *more)

        monkeypatch.setattr(CommitLog, name, read)


def given_up(play: TransactionPlay) -> tuple[Half, str]:
    """A half that nobody answered for, and the id of its copy in the topic of those."""
    play.join()
    half = play.half(key="lost")
    play.run_pass(_MINUTE_MS)
    play.run_pass(_MINUTE_MS)
    (copy,) = play.records("TRANS_CHECK_MAX_TIME_TOPIC")
    return half, records.offset_message_id(HOST, copy.log_offset)


def asked(play: TransactionPlay, cold: Cold, code: int, **ext: str) -> frames.Command:
    answer = play.ask(code, **ext)
    assert answer is not None and cold.brought
    return answer


def test_a_transaction_is_shown_under_any_of_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    play = TransactionPlay(warm_bytes=0)
    half = play.half(b"paid" * 100, key="old")
    play.half(key="new")
    message_id = records.offset_message_id(HOST, half.log_offset)
    cold = Cold(play, monkeypatch)
    for name in (str(half.queue_offset), "old", message_id):
        cold.brought.clear()
        assert asked(play, cold, RequestCode.SHOW_TRANSACTION, id=name).code == 0
    assert asked(play, cold, RequestCode.SHOW_TRANSACTION, id=message_id[:-1] + "1").code == 22, "middle of a record"


@pytest.mark.parametrize("action", ["commit", "rollback"])
def test_one_is_settled_by_hand(action: str, monkeypatch: pytest.MonkeyPatch) -> None:
    play = TransactionPlay(warm_bytes=0)
    play.half(key="old")
    play.half(key="new")
    cold = Cold(play, monkeypatch)
    assert asked(play, cold, RequestCode.SETTLE_TRANSACTION, id="old", action=action).code == 0
    cold.is_watching = False
    assert play.visible() == [(b"paid", "old")] * (action == "commit")


@pytest.mark.parametrize("code", [RequestCode.SETTLE_TRANSACTION, RequestCode.RESUME_CHECK_HALF_MESSAGE])
def test_one_that_was_given_up_is_armed_again_after_a_restart(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    play = TransactionPlay(rules=CheckPolicy(checks_max=1), warm_bytes=0)
    _, message_id = given_up(play)
    play.end(play.half(key="last"), ROLLBACK)
    play.reopen()
    assert play.book.map.base, "only the log knows what became of it"
    cold = Cold(play, monkeypatch)
    names = {"id": "lost", "action": "rearm"} if code == RequestCode.SETTLE_TRANSACTION else {"msgId": message_id}
    assert asked(play, cold, code, **names).code == 0
    assert [half.root for half in play.book.open.values()] == [0]


async def test_a_list_reads_what_it_shows_and_others_have_their_turn_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    play = TransactionPlay(warm_bytes=0)
    for number in range(200):
        play.half(key=f"k{number}")
    cold = Cold(play, monkeypatch)

    async def listed(begin: int, limit: int) -> tuple[list[int], int, int]:
        command = request(RequestCode.LIST_TRANSACTIONS, begin=begin, limit=limit)
        task = asyncio.ensure_future(play.handlers.page(play.connection, command))  # type: ignore[arg-type]
        turns = 0
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        page = bodies.loads_object(task.result().body)
        return [one["root"] for one in page["transactions"]], page["next"], turns  # type: ignore[index,call-overload]

    assert (await listed(0, 10))[:2] == (list(range(10)), 10) and len(cold.brought) <= 32
    roots, following, turns = await listed(50, 500)
    assert (roots, following) == (list(range(50, 200)), -1) and turns >= 10
