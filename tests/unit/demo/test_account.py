from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from account import Account, settle
from screen import closing_table


def _ledgers(
    folder: Path,
    sent: Iterable[str] = (),
    acknowledged: Iterable[str] = (),
    received: Iterable[Iterable[str]] = (),
    outage: str = "",
) -> Path:
    (folder / "sent.csv").write_text("".join(f"{line}\n" for line in sent))
    (folder / "acknowledged.csv").write_text("".join(f"{line}\n" for line in acknowledged))
    for number, lines in enumerate(received, 1):
        (folder / f"received-{number}.csv").write_text("".join(f"{line}\n" for line in lines))
    if outage:
        (folder / "outage.csv").write_text(outage + "\n")
    return folder


def _account(folder: Path, **ledgers: object) -> Account:
    return settle(_ledgers(folder, **ledgers))  # type: ignore[arg-type]


def test_an_acknowledged_order_that_nobody_received_is_lost(tmp_path: Path) -> None:
    account = _account(
        tmp_path,
        sent=["a,1", "b,2"],
        acknowledged=["a,ID1,5.0,1000", "b,ID2,5.0,1001"],
        received=[["a,ID1,0:0,1,1002"], []],
    )
    assert account.lost == ["b"]
    assert not account.is_good
    assert "BROKEN PROMISE: 1 lost" in closing_table(account, Path("x"))


def test_an_order_that_was_never_acknowledged_is_nobodys_loss(tmp_path: Path) -> None:
    account = _account(tmp_path, sent=["a,1", "b,2"], acknowledged=["a,ID1,5.0,1000"], received=[["a,ID1,0:0,1,1002"]])
    assert account.is_good
    assert (account.sent, account.acknowledged, account.received) == (2, 1, 1)


def test_an_order_with_other_bytes_is_altered(tmp_path: Path) -> None:
    account = _account(tmp_path, sent=["a,1"], acknowledged=["a,ID1,5.0,1000"], received=[["a,ID1,0:0,99,1002"]])
    assert account.altered == ["a"]
    assert not account.is_good


def test_the_same_place_again_is_a_redelivery_and_another_place_a_second_copy(tmp_path: Path) -> None:
    account = _account(
        tmp_path,
        sent=["a,1", "b,2"],
        acknowledged=["a,ID1,5.0,1000", "b,ID2,5.0,1001"],
        received=[["a,ID1,0:0,1,1002", "b,ID2,0:1,2,1003"], ["a,ID1,0:0,1,1004", "b,ID2,1:0,2,1005"]],
    )
    assert (account.redelivered, account.stored_twice) == (1, 1)
    assert account.is_good
    table = closing_table(account, Path("x"))
    assert "allowed: 1 stored twice" in table
    assert "allowed: 1 delivered again" in table


def test_a_line_cut_off_by_a_kill_is_no_evidence(tmp_path: Path) -> None:
    _ledgers(tmp_path, sent=["a,1"], acknowledged=["a,ID1,5.0,1000"], received=[["a,ID1,0:0,1,1002"]])
    with (tmp_path / "received-1.csv").open("a") as ledger:
        ledger.write("b,ID")
    assert settle(tmp_path).received == 1


def test_the_calm_percentile_leaves_out_who_met_the_outage(tmp_path: Path) -> None:
    quick = [f"q{number},ID,2.0,{1000 + number}" for number in range(90)]
    slow = [f"s{number},ID,1500.0,{6000 + number}" for number in range(10)]
    account = _account(tmp_path, acknowledged=[*quick, *slow], outage="5000,6000")
    assert account.p99_ms == 1500.0
    assert account.p99_calm_ms == 2.0
    assert account.away_ms == 1000
