"""Ends of transactions while too few replicas are in sync: refused or unknown, never dropped."""

from __future__ import annotations

from gantry.broker.role.master_role import GATE_SHORT
from gantry.errors import Refusal
from gantry.store.settings import Flush
from gantry.wire.codes import ResponseCode
from testkit.transactionplay import COMMIT, TransactionPlay

_S = 1000
_INTERVAL = 30 * _S


def test_a_commit_that_meets_too_few_in_sync_replicas_is_asked_about_and_not_dropped() -> None:
    play = TransactionPlay()
    half = play.half(key="k")
    play.join()
    play.gate.shut(GATE_SHORT, Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "in-sync replicas not enough"))
    assert play.end(half, COMMIT) == ResponseCode.SERVICE_NOT_AVAILABLE
    (question,) = play.run_pass(_INTERVAL)
    assert play.end(question.half, COMMIT, is_check=True) == ResponseCode.SERVICE_NOT_AVAILABLE
    assert len(play.book.open) == 1 and play.visible() == []
    play.gate.reopen(GATE_SHORT)
    (question,) = play.run_pass(_INTERVAL)
    assert play.end(question.half, COMMIT, is_check=True) == 0
    assert play.visible() == [(b"paid", "k")] and not play.book.open


def test_a_commit_that_is_written_while_nothing_is_confirmed_is_delivered_once_when_it_is() -> None:
    play = TransactionPlay(Flush.SYNC)
    half = play.half(key="k")
    play.flush()
    play.answers()
    opaque = play.end_later(half, COMMIT)
    play.turn()
    play.clock.advance(6 * _S)
    play.acks.expire()
    assert play.answers() == {opaque: ResponseCode.FLUSH_DISK_TIMEOUT} and play.visible() == []
    assert play.run_pass(_INTERVAL) == [], "its end is under way: nobody is asked"
    play.flush()
    assert play.visible() == [(b"paid", "k")] and not play.book.open
    assert play.end(half, COMMIT) == 0 and play.visible() == [(b"paid", "k")]
