"""Ends that cross puts back, in every order, with every kind of stop in between: delivered once."""

from __future__ import annotations

import random
from itertools import product

import pytest

from gantry.store.settings import Flush
from gantry.wire.codes import ResponseCode
from testkit.transactionplay import COMMIT, ROLLBACK, TransactionPlay


@pytest.mark.parametrize(
    "orders",
    [
        ("put", "end"),
        ("end", "put"),
        pytest.param(("put", "end", "put"), marks=pytest.mark.slow),
        pytest.param(("put", "put", "end"), marks=pytest.mark.slow),
    ],
)
def test_a_commit_crosses_a_put_back_at_every_step_and_is_delivered_once(orders: tuple[str, ...]) -> None:
    """Under SYNC_FLUSH each append can be written and not dispatched.  Between any two of them, and behind the last:
    nothing, a flush, an orderly restart, a kill (the log is there as far as it was written), a power cut.
    """
    for between in product(("", "flush", "restart", "kill", "power"), repeat=len(orders)):
        case = list(zip(orders, between, strict=True))
        play = TransactionPlay(Flush.SYNC)
        play.half(b"before", key="before")
        half = play.half(key="k")
        play.flush()
        root = half.queue_offset
        for step, event in case:
            if step == "end":
                play.end_later(half, COMMIT)
                play.turn()
            elif not play.settling.is_moving(root) and (known := play.book.find(root)) is not None:
                record = play.half_record(known.current)
                assert record is not None and play.settling.put_back(root, record, 1, play.clock.now_ms()) is None, case
            if event == "flush":
                play.flush()
            elif event == "restart":
                play.reopen()
            elif event == "kill":
                play.kill()
            elif event == "power":
                play.crash(random.Random(str(case)))
        play.end_later(half, COMMIT)
        play.turn()
        play.flush()
        assert play.visible() == [(b"paid", "k")], case
        assert [known.root for known in play.book.open.values()] == [0], case
        play.save()
        play.reopen()
        same, opposite = play.end_later(half, COMMIT), play.end_later(half, ROLLBACK)
        play.turn()
        play.flush()
        assert play.answers() == {same: 0, opposite: ResponseCode.TRANSACTION_SHOULD_COMMIT}, case
        assert play.visible() == [(b"paid", "k")] and len(play.book.open) == 1, case
