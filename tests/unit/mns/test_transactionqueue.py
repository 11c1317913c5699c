"""Plays of transaction queues on both shells: what each side does, in any order, and what is left.

The application is a SQLite database with the table of gantry.mns.transactiontable; the clock is the stand-in's.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from gantry.errors import OutcomeUnknownError
from gantry.mns import blockingchecker, transactionchecker
from gantry.mns.blockingchecker import BlockingTransactionChecker
from gantry.mns.errors import LateCommitError, ServiceError, UnsafeQueueError
from gantry.mns.settling import LocalRollback, TransactionTally
from gantry.mns.transactionchecker import TransactionChecker
from gantry.mns.transactionsteps import LocalOutcome, Settlement
from gantry.mns.values import QueueAttributes
from testkit.mnsshells import SHELLS, shell
from testkit.mnsstandin import Standin, served
from testkit.mnstransactionplay import LOG
from testkit.mnstransactionplay import TransactionPlay as Play
from testkit.pairplay import until
from testkit.patience import HANG_S


@pytest.fixture(params=SHELLS)
def play(request: pytest.FixtureRequest) -> Iterator[Play]:
    standin = Standin()
    with (
        served(standin) as endpoint,
        shell(request.param, endpoint) as at_work,
        closing(sqlite3.connect(":memory:", check_same_thread=False)) as database,
    ):
        yield Play(standin, at_work, database)


def raise_it(error: Exception) -> None:
    """Raise an exception inside a block."""
    raise error


def faulty(play: Play, method: str, part: str, fault: str | int) -> None:
    """From now on this happens to every request of a method whose target has this part."""
    play.standin.faults = lambda verb, target: fault if verb == method and part in target else None


def test_both_queues_are_made_as_the_vendors_library_makes_them(play: Play) -> None:
    attributes = play.standin.queues["orders"].attributes
    assert (attributes["MessageRetentionPeriod"], attributes["DelaySeconds"]) == ("1000", "2000")
    assert play.standin.queues[LOG].attributes["DelaySeconds"] == "0"
    play.queue.create()
    play.queue.delete(with_log=False)
    assert list(play.standin.queues) == [LOG]
    play.queue.delete(with_log=True)
    assert not play.standin.queues


def test_a_block_that_ends_well_commits(play: Play) -> None:
    with play.queue.transaction("tea", priority=2) as transaction:
        assert play.seen() == [] and play.logs == 1
        assert play.standin.queues[LOG].messages[0].visible_ms == play.standin.now_ms - 1000 + 10_000
        play.record(transaction.handle)
    assert transaction.settlement is Settlement.NOW
    assert play.seen() == ["tea"] and play.logs == 0
    assert play.standin.queues["orders"].messages[0].priority == 2
    assert play.queue.tally == TransactionTally(prepared=1, committed=1)


def test_a_block_that_says_rollback_deletes(play: Play) -> None:
    with play.queue.transaction("tea") as transaction:
        raise_it(LocalRollback())
    assert transaction.settlement is Settlement.NOW and play.logs == play.standin.left("orders") == 0
    with play.queue.transaction("tea") as transaction:
        transaction.rollback()
    assert play.logs == play.standin.left("orders") == 0 and play.queue.tally.rolled_back == 2


def test_a_block_that_fails_settles_nothing_and_the_checker_does(play: Play) -> None:
    with pytest.raises(ConnectionError), play.queue.transaction("committed") as transaction:
        play.record(transaction.handle)
        raise ConnectionError("the answer to COMMIT is lost")
    with pytest.raises(ConnectionError), play.queue.transaction("not committed"):
        raise ConnectionError("before COMMIT")
    assert play.logs == 2 and play.queue.tally.left == 2 and transaction.settlement is None
    assert play.check() == 2 and play.seen() == ["committed"] and play.logs == 0
    assert (play.checking.tally.committed, play.checking.tally.rolled_back) == (1, 1)


def test_commit_and_rollback_together_are_for_a_check(play: Play) -> None:
    with play.queue.transaction("tea") as transaction:
        transaction.commit()
        raise_it(LocalRollback())
    assert play.logs == 1 and play.queue.tally.left == 1


def test_what_the_program_said_counts_when_an_exception_follows(play: Play) -> None:
    with pytest.raises(KeyError), play.queue.transaction("tea") as transaction:
        play.record(transaction.handle)
        transaction.commit()
        raise KeyError
    assert play.seen() == ["tea"] and play.logs == 0


def test_a_second_commit_changes_nothing(play: Play) -> None:
    prepared = play.queue.prepare("tea")
    assert [play.queue.commit(prepared), play.queue.commit(prepared)] == [Settlement.NOW, Settlement.BEFORE]
    assert play.seen() == ["tea"] and play.queue.commit(prepared) is Settlement.BEFORE
    assert play.seen() == ["tea"]


def test_of_commit_and_rollback_the_first_counts(play: Play) -> None:
    first = play.queue.prepare("rolled back")
    assert [play.queue.rollback(first), play.queue.commit(first)] == [Settlement.NOW, Settlement.BEFORE]
    second = play.queue.prepare("committed")
    assert [play.queue.commit(second), play.queue.rollback(second)] == [Settlement.NOW, Settlement.BEFORE]
    assert play.seen() == ["committed"]


def test_a_prepared_message_that_nobody_settles_is_never_seen(play: Play) -> None:
    play.queue.prepare("tea")
    for _ in range(25):
        play.standin.pass_s(100)
        assert play.standin.visible("orders") == []
    assert play.standin.left("orders") == 0


def test_a_commit_after_the_life_raises_and_counts(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    prepared = play.queue.prepare("tea")
    play.standin.pass_s(1000)
    with pytest.raises(LateCommitError, match=re.escape(prepared.handle)):
        play.queue.commit(prepared)
    assert play.queue.tally.late == 1 and play.seen() == []
    assert [each.levelno for each in caplog.records if "may be lost" in each.getMessage()] == [logging.ERROR]


def test_a_commit_that_takes_effect_after_the_life_raises_although_the_server_took_it(play: Play) -> None:
    prepared = play.queue.prepare("tea")
    play.standin.pass_s(999)
    with pytest.raises(LateCommitError):
        play.queue.commit(prepared)
    assert play.seen() == []


def test_a_commit_with_two_seconds_left_is_in_time(play: Play) -> None:
    prepared = play.queue.prepare("tea")
    play.standin.pass_s(996)
    assert play.queue.commit(prepared) is Settlement.NOW and play.seen() == ["tea"]


def test_a_block_that_ends_after_the_life_raises_when_it_is_left(play: Play) -> None:
    with pytest.raises(LateCommitError), play.queue.transaction("tea") as transaction:
        play.record(transaction.handle)
        play.standin.pass_s(1000)
    assert transaction.settlement is Settlement.LATE and play.logs == 1, "the log was visible long ago"
    assert play.check() == 1 and play.logs == 0 and play.checking.tally.late == 1


def test_a_checker_that_comes_after_the_life_counts_it_and_confirms(play: Play) -> None:
    with play.queue.transaction("tea") as transaction:
        play.record(transaction.handle)
        transaction.leave()
    play.standin.pass_s(1000)
    assert play.check() == 1 and play.checking.tally.late == 1 and play.logs == 0


def test_a_fence_fails_the_local_transaction_that_is_slower_than_the_timeout(play: Play) -> None:
    with pytest.raises(sqlite3.IntegrityError), play.queue.transaction("tea") as transaction:
        assert play.check() == 1 and play.asked == [transaction.handle]
        play.record(transaction.handle)
    assert play.seen() == [] and play.logs == 0
    assert play.standin.left("orders") == 0, "the checker has rolled it back"


def test_a_checker_that_finds_the_row_before_the_block_ends_is_first(play: Play) -> None:
    with play.queue.transaction("tea") as transaction:
        play.record(transaction.handle)
        assert play.check() == 1
        assert play.seen() == ["tea"]
    assert transaction.settlement is Settlement.BEFORE and play.logs == 0
    assert play.queue.tally == TransactionTally(prepared=1, settled_before=1, unconfirmed=1)


def test_a_checker_in_the_same_process_waits_for_blocks_that_run(play: Play) -> None:
    own = play.shell.checker(play.queue, play.ask)
    with play.queue.transaction("tea") as transaction:
        play.standin.pass_s(10)
        assert own.check() == 1 and play.asked == [] and play.logs == 1
        play.record(transaction.handle)
    assert play.seen() == ["tea"]


def test_an_application_that_does_not_know_is_asked_again(play: Play) -> None:
    with play.queue.transaction("tea") as transaction:
        transaction.leave()
    answers = iter([LocalOutcome.UNKNOWN, ValueError("no database"), True, None, LocalOutcome.COMMITTED])

    def ask(_handle: str) -> LocalOutcome:
        answer = next(answers)
        if isinstance(answer, ValueError):
            raise answer
        return answer  # type: ignore[return-value]  # as an application without types may answer

    checker = play.shell.checker(play.checking, ask)
    play.standin.pass_s(10)
    for _ in range(4):
        assert checker.check() == 1 and play.seen() == [] and play.logs == 1
        assert checker.check() == 0, "leased"
        play.standin.pass_s(29)
    assert checker.check() == 1 and play.seen() == ["tea"] and play.logs == 0
    assert play.checking.tally == TransactionTally(checked=5, left=4, committed=1)


def test_an_application_that_never_answers_does_not_end_the_checks(
    play: Play, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for body in ("tea", "milk"):
        with play.queue.transaction(body) as transaction:
            transaction.leave()
    is_first = iter([True])
    answering, stop = threading.Event(), threading.Event()

    def ask_blocking(handle: str) -> LocalOutcome:
        if next(is_first, False):
            play.standin.pass_s(30)  # what was received with it is visible again
            assert answering.wait(HANG_S)
        return LocalOutcome.COMMITTED

    async def ask(handle: str) -> LocalOutcome:
        if next(is_first, False):
            await asyncio.Event().wait()
        return LocalOutcome.COMMITTED

    for module in (transactionchecker, blockingchecker):
        monkeypatch.setattr(module, "ASK_S", 0.01)
    checking, _ = play.checking, play.standin.pass_s(10)
    if play.shell.kind == "asyncio":
        checker = TransactionChecker(checking._thing, ask)
        assert checking._loop.run_until_complete(asyncio.wait_for(checker.check(), HANG_S)) == 2
        assert len(play.seen()) == 1 and play.logs == 1
        play.standin.pass_s(30)
        assert checking._loop.run_until_complete(checker.check()) == 1
    else:
        run = BlockingTransactionChecker(checking, ask_blocking).run
        thread = threading.Thread(target=run, args=(stop,), daemon=True)
        thread.start()
        until(lambda: not play.logs, "another thread settles both")
        stop.set()
        answering.set()
        thread.join(HANG_S)
        assert not thread.is_alive() and "the application has not said" in caplog.text
    assert sorted(play.seen()) == ["milk", "tea"] and play.logs == 0


def test_a_log_without_a_handle_is_counted_and_left(play: Play) -> None:
    play.shell.account.queue(LOG).send("nonsense")
    assert play.check() == 1 and play.checking.tally == TransactionTally(checked=1, unreadable=1)
    assert play.logs == 1 and play.asked == []


@pytest.mark.parametrize("fault", ["drop", "lose", 500])
def test_a_prepare_that_fails_leaves_nothing_that_is_seen(play: Play, fault: str | int) -> None:
    faulty(play, "POST", "/orders/", fault)
    with pytest.raises((OutcomeUnknownError, ServiceError)):
        play.queue.transaction("tea").__enter__()
    play.standin.pass_s(999)
    assert play.standin.visible("orders") == [] and play.logs == 0


@pytest.mark.parametrize("fault", ["drop", "lose", 500])
def test_a_log_that_fails_rolls_the_prepared_message_back(play: Play, fault: str | int) -> None:
    faulty(play, "POST", LOG, fault)
    with pytest.raises((OutcomeUnknownError, ServiceError)):
        play.queue.transaction("tea").__enter__()
    assert play.standin.left("orders") == 0 and play.queue.tally.rolled_back == 1
    assert play.logs == (4 if fault == "lose" else 0)
    play.check()
    assert play.logs == 0 and play.seen() == []


def test_a_log_whose_answer_is_lost_once_does_not_stop_the_transaction(play: Play) -> None:
    left = [1]

    def once(method: str, target: str) -> str | None:
        is_it = method == "POST" and LOG in target and left[0] > 0
        left[0] -= is_it
        return "lose" if is_it else None

    play.standin.faults = once
    with play.queue.transaction("tea") as transaction:
        play.record(transaction.handle)
    assert play.seen() == ["tea"] and play.logs == 1, "the log whose handle was lost"
    assert play.check() == 1 and play.logs == 0 and play.checking.tally.settled_before == 1
    assert play.standin.visible("orders") == ["tea"]


@pytest.mark.parametrize("fault", ["drop", "lose", 500])
@pytest.mark.parametrize("outcome", [LocalOutcome.COMMITTED, LocalOutcome.ROLLED_BACK])
def test_a_settlement_that_fails_is_repaired_by_the_checker(
    play: Play, fault: str | int, outcome: LocalOutcome
) -> None:
    faulty(play, "PUT" if outcome is LocalOutcome.COMMITTED else "DELETE", "/orders/", fault)
    with play.queue.transaction("tea") as transaction:
        if outcome is LocalOutcome.COMMITTED:
            play.record(transaction.handle)
        else:
            transaction.rollback()
    play.standin.faults = lambda _method, _target: None
    assert transaction.settlement is None and play.logs == 1 and play.queue.tally.left == 1
    assert play.check() == 1 and play.logs == 0
    assert play.seen() == (["tea"] if outcome is LocalOutcome.COMMITTED else [])


@pytest.mark.parametrize("fault", ["drop", "lose", 500])
def test_a_confirmation_that_fails_is_repaired_by_the_checker(play: Play, fault: str | int) -> None:
    faulty(play, "DELETE", LOG, fault)
    with play.queue.transaction("tea") as transaction:
        play.record(transaction.handle)
    play.standin.faults = lambda _method, _target: None
    assert transaction.settlement is Settlement.NOW
    assert play.check() == (0 if fault == "lose" else 1)
    assert play.logs == 0 and play.seen() == ["tea"]


def test_a_queue_that_became_unsafe_is_refused_and_what_was_prepared_is_settled(play: Play) -> None:
    with play.queue.transaction("tea") as transaction:
        play.record(transaction.handle)
        transaction.leave()
    play.shell.account.queue("orders").set_attributes(QueueAttributes(delay_s=5))
    queue = play.shell.transaction_queue()
    for use in (queue.create, lambda: queue.prepare("milk")):
        with pytest.raises(UnsafeQueueError):
            use()
    play.standin.pass_s(10)
    assert play.shell.checker(queue, play.ask).check() == 1
    assert play.seen() == ["tea"] and play.logs == 0


class SlowClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.at = 1000.0

    def monotonic(self) -> float:
        return self.at

    def now_ms(self) -> int:
        return round(self.at * 1000)


def test_attributes_are_looked_at_again_after_a_minute(play: Play) -> None:
    clock = SlowClock()
    queue = play.shell.transaction_queue(clock=clock)
    assert queue.look() == 1000
    play.shell.account.queue("orders").set_attributes(QueueAttributes(life_s=900))
    assert queue.look() == 1000
    clock.at += 61
    assert queue.look() == 900


def test_a_queue_whose_delay_went_a_moment_ago_does_not_show_what_is_prepared(play: Play) -> None:
    play.shell.account.queue("orders").set_attributes(QueueAttributes(delay_s=0))
    prepared = play.queue.prepare("tea")
    play.standin.pass_s(500)
    assert play.standin.visible("orders") == []
    assert play.queue.commit(prepared) is Settlement.NOW and play.seen() == ["tea"]


def test_a_producer_that_takes_a_minute_for_its_log_gives_up(play: Play) -> None:
    clock = SlowClock()
    queue = play.shell.transaction_queue(clock=clock)

    def slow(method: str, target: str) -> None:
        if method == "POST" and LOG in target:
            clock.at += 61

    play.standin.faults = slow
    with pytest.raises(OutcomeUnknownError, match="more than 60 s; the message is rolled back"):
        queue.transaction("tea").__enter__()
    assert play.standin.left("orders") == 0
    assert play.check() == 1 and play.logs == 0


def test_no_handle_stays_open_after_its_block(play: Play) -> None:
    for fault in ("", "/orders/", LOG):
        faulty(play, "POST", fault or "nothing", 400)
        try:
            with play.queue.transaction("tea"):
                raise LocalRollback
        except ServiceError:
            continue
    assert play.queue.open == set()
