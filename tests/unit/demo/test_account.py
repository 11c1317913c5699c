from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from account import Account, settle
from screen import closing_table


def _ledgers(
    folder: Path,
    rows: Iterable[tuple[str, str, int]] = (),
    acknowledged: Iterable[str] = (),
    received: Iterable[Iterable[str]] = (),
    asked: Iterable[str] = (),
    outage: str = "",
) -> Path:
    with closing(sqlite3.connect(folder / "orders.db")) as database, database:
        database.execute("CREATE TABLE orders (number TEXT PRIMARY KEY, message_id TEXT UNIQUE, crc INTEGER)")
        database.executemany("INSERT INTO orders VALUES (?, ?, ?)", rows)
    (folder / "acknowledged.csv").write_text("".join(f"{line}\n" for line in acknowledged))
    (folder / "asked-1.csv").write_text("".join(f"{line}\n" for line in asked))
    for number, lines in enumerate(received, 1):
        (folder / f"received-{number}.csv").write_text("".join(f"{line}\n" for line in lines))
    if outage:
        (folder / "outage.csv").write_text(outage + "\n")
    return folder


def _account(folder: Path, **ledgers: object) -> Account:
    return settle(_ledgers(folder, **ledgers))  # type: ignore[arg-type]


def test_a_row_whose_message_nobody_received_is_lost(tmp_path: Path) -> None:
    account = _account(tmp_path, rows=[("a", "ID1", 1), ("b", "ID2", 2)], received=[["a,ID1,0:0,1,1002"], []])
    assert account.lost == ["b"]
    assert (account.rows, account.delivered) == (2, 1)
    assert not account.is_good
    assert "BROKEN PROMISE: 1 rows without message" in closing_table(account, Path("x"))


def test_a_message_that_no_row_knows_is_unwanted(tmp_path: Path) -> None:
    account = _account(tmp_path, rows=[("a", "ID1", 1)], received=[["a,ID1,0:0,1,1002", "a,ID0,0:1,1,1003"]])
    assert account.unwanted == ["ID0"]
    assert not account.is_good


def test_a_message_at_two_places_was_committed_twice(tmp_path: Path) -> None:
    account = _account(tmp_path, rows=[("a", "ID1", 1)], received=[["a,ID1,0:0,1,1002"], ["a,ID1,1:0,1,1003"]])
    assert (account.twice, account.redelivered) == (["ID1"], 0)
    assert not account.is_good


def test_an_order_with_other_bytes_is_altered(tmp_path: Path) -> None:
    account = _account(tmp_path, rows=[("a", "ID1", 1)], received=[["a,ID1,0:0,99,1002"]])
    assert account.altered == ["a"]
    assert not account.is_good


def test_the_same_place_again_is_a_redelivery_and_allowed(tmp_path: Path) -> None:
    account = _account(tmp_path, rows=[("a", "ID1", 1)], received=[["a,ID1,0:0,1,1002"], ["a,ID1,0:0,1,1004"]])
    assert account.redelivered == 1
    assert account.is_good
    assert "allowed: 1 delivered again" in closing_table(account, Path("x"))


def test_a_half_counts_once_however_often_the_broker_asked(tmp_path: Path) -> None:
    account = _account(tmp_path, asked=["ID1,commit", "ID1,commit", "ID2,rollback"])
    assert (account.answered_commit, account.answered_rollback) == (1, 1)


def test_a_line_cut_off_by_a_kill_is_no_evidence(tmp_path: Path) -> None:
    _ledgers(tmp_path, rows=[("a", "ID1", 1)], received=[["a,ID1,0:0,1,1002"]])
    with (tmp_path / "received-1.csv").open("a") as ledger:
        ledger.write("b,ID")
    assert settle(tmp_path).delivered == 1


def test_a_service_that_died_before_it_made_a_table_has_no_rows(tmp_path: Path) -> None:
    assert settle(tmp_path).rows == 0


def test_the_calm_percentile_leaves_out_who_met_the_outage(tmp_path: Path) -> None:
    quick = [f"q{number},ID,2.0,{1000 + number}" for number in range(90)]
    slow = [f"s{number},ID,1500.0,{6000 + number}" for number in range(10)]
    account = _account(tmp_path, acknowledged=[*quick, *slow], outage="5000,6000")
    assert account.p99_ms == 1500.0
    assert account.p99_calm_ms == 2.0
    assert account.away_ms == 1000
