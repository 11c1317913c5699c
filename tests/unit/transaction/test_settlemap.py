"""The settle map: two bits a half, final outcomes, roots below its base, and its bound."""

from __future__ import annotations

import random

import pytest

from gantry.transaction import settlemap
from gantry.transaction.oplog import TransactionState
from gantry.transaction.settlemap import SettleMap

C, R = TransactionState.COMMITTED, TransactionState.ROLLED_BACK
G, OPEN = TransactionState.GIVEN_UP, TransactionState.OPEN


def test_it_agrees_with_a_dictionary() -> None:
    rng = random.Random(7)
    table, known = SettleMap(1001), {}
    table.grow(3000)
    for _ in range(5000):
        root, outcome = rng.randrange(900, 3000), rng.choice((C, R, G))
        if known.get(root, OPEN) in (OPEN, G):
            assert table.put(root, outcome)
            known[root] = outcome
        else:
            assert not table.put(root, outcome), "final"
    for root in range(900, 3000):
        assert table.get(root) == known.get(root, OPEN if root >= 1001 else None)
    assert table.get(3000) is None


def test_a_given_up_one_may_be_opened_and_settled() -> None:
    table = SettleMap()
    for outcome in (G, OPEN, G, C):
        assert table.put(5, outcome) and table.get(5) is outcome
    assert not table.put(5, R) and table.get(5) is C


def test_a_million_settled_halves_take_a_quarter_of_a_megabyte() -> None:
    table = SettleMap()
    table.grow(1_000_000)
    assert table.bytes <= 250_100


def test_what_is_forgotten_is_none_and_the_rest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settlemap, "_KEEP_MAX", 100)
    table = SettleMap(3)
    for root in range(3, 1000):
        table.grow(root + 1)
        table.put(root, C if root % 2 else R)
    assert table.base > 700
    assert table.get(table.base - 1) is None
    for root in range(table.base, 1000):
        assert table.get(root) is (C if root % 2 else R)
