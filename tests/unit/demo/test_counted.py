"""The account of the demonstration with Spark finds what is missing, there twice, unknown or counted wrong."""

from __future__ import annotations

import runpy
import sqlite3
from argparse import Namespace
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest
from counted import Counted, closing_table, count

from testkit.sources import ROOT

ORDERS = ROOT / "broker/demo/orders.csv"
# 0001 is placed at 08:01 for 3 x 8800, 0002 at 08:02 for 4700.
REVENUE = [("08:01", 2, 52800), ("08:02", 1, 4700)]


def counted(folder: Path, archived: Iterable[str], revenue: Iterable[tuple[str, int, int]] = REVENUE) -> Counted:
    with closing(sqlite3.connect(folder / "orders.db")) as database, database:
        database.execute("CREATE TABLE orders (number, message_id, crc)")
        database.executemany("INSERT INTO orders VALUES (?, ?, 0)", [("1-0001", "a"), ("2-0001", "b"), ("1-0002", "c")])
    with closing(sqlite3.connect(folder / "revenue.db")) as database, database:
        database.execute("CREATE TABLE revenue (minute, orders, cents)")
        database.executemany("INSERT INTO revenue VALUES (?, ?, ?)", revenue)
        database.execute("CREATE TABLE batches (number)")
    return count(folder, ORDERS, list(archived))


def test_every_order_once_in_both_is_good(tmp_path: Path) -> None:
    found = counted(tmp_path, "abc")
    assert found.is_good and (found.rows, found.archived, found.counted) == (3, 3, 3)
    assert found.cents == found.cents_of_ledger == 57500
    assert "archived once and counted once" in closing_table(found, tmp_path)


@pytest.mark.parametrize(
    ("archived", "what"),
    [("ab", "1 orders not archived, 0 unknown, 0 twice"), ("abcd", "not archived, 1 unknown"), ("abcc", "1 twice")],
)
def test_an_archive_that_is_not_the_ledger_is_told(tmp_path: Path, archived: str, what: str) -> None:
    found = counted(tmp_path, archived)
    assert not found.is_good and what in closing_table(found, tmp_path)


class Story:
    """Instead of the demonstration's own: what it left, an order of the first minute missing where another is twice."""

    def __init__(self, folder: Path, orders: int, screen: object) -> None:
        self._folder = folder
        self._is_broken = orders < 0

    async def run(self) -> Counted:
        if self._is_broken:
            return counted(self._folder, "aac", [("08:01", 2, 52800), ("08:02", 1, 4700)])
        return counted(self._folder, "abc")

    async def stop(self) -> None:
        """Nothing runs."""


@pytest.mark.parametrize(("orders", "code"), [(3, 0), (-3, 1)])
async def test_an_account_that_is_broken_ends_the_demonstration_with_exit_code_1(
    tmp_path: Path, orders: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    program = runpy.run_path(str(ROOT / "spark/demo/run.py"))
    play = program["play"]
    play.__globals__["Demonstration"] = Story
    assert await play(Namespace(folder=tmp_path / "demo", orders=orders)) == code
    last = capsys.readouterr().out.splitlines()[-1]
    broken = "BROKEN PROMISE: 1 orders not archived, 0 unknown, 1 twice, 0 minutes wrong, such as 2-0001, a"
    assert last == (broken if code else "Every order is archived once and counted once.")


def test_an_order_that_is_missing_is_not_made_up_for_by_one_that_is_counted_twice(tmp_path: Path) -> None:
    # As many orders as there are, and one of them in place of another.
    found = counted(tmp_path, "abc", [("08:01", 3, 79200)])
    assert found.counted == found.rows and found.wrong_minutes == ["08:01", "08:02"] and not found.is_good


@pytest.mark.parametrize("revenue", [REVENUE[:1], [*REVENUE, ("08:03", 1, 1)], [("08:01", 3, 79200), REVENUE[1]]])
def test_a_minute_that_is_counted_wrong_is_told(tmp_path: Path, revenue: list[tuple[str, int, int]]) -> None:
    found = counted(tmp_path, "abc", revenue)
    assert not found.is_good and "1 minutes wrong" in closing_table(found, tmp_path)
