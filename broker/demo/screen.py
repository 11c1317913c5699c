"""What the demonstration shows: a line of progress while it runs, and a table at the end.

On a terminal the progress stays in one line; elsewhere it is a line every other second.  Each row of the table comes
with the command that shows the same to anyone who does not believe it.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TextIO

from account import Account, Outage

_BAR = 30
_EVERY_S = 2.0
_GANTRY = os.path.relpath(Path(sys.executable).with_name("gantry"))


class Screen:
    """Prints what happens, as it happens."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._live = out.isatty()
        self._begun = time.monotonic()
        self._last = 0.0
        self._rows = 0
        self._open = False

    def say(self, text: str) -> None:
        """One event."""
        self._clear()
        print(f"{self._clock()}  {text}", file=self._out, flush=True)

    def progress(self, orders: int, rows: int, received: int, what: str = "messages received") -> None:
        """How far everybody has come."""
        now = time.monotonic()
        if not self._live and now - self._last < _EVERY_S:
            return
        self._last = now
        # A service that has just begun has not counted yet, and its database does not shrink.
        rows = self._rows = max(rows, self._rows)
        done = min(_BAR, _BAR * rows // max(orders, 1))
        bar = "#" * done + "-" * (_BAR - done)
        text = f"{self._clock()}  [{bar}]  rows {rows}, {what} {received}"
        if self._live:
            print(f"\r\x1b[K{text}", end="", file=self._out, flush=True)
            self._open = True
        else:
            print(text, file=self._out, flush=True)

    def end(self) -> None:
        """The last progress line stays."""
        if self._open:
            print(file=self._out)
        self._open = False

    def _clear(self) -> None:
        if self._open:
            print("\r\x1b[K", end="", file=self._out)
        self._open = False

    def _clock(self) -> str:
        return f"{time.monotonic() - self._begun:5.1f} s"


def closing_table(account: Account, folder: Path) -> str:
    """The account with, for each row, how to see it oneself."""
    database, received, asked = f"{folder}/database.csv", f"{folder}/received-*.csv", f"{folder}/asked-*.csv"
    in_order = f"cut -d, -f3 {folder}/acknowledged.csv | sort -n"
    known = f"<(cut -d, -f2 {database} | sort) <(cut -d, -f2 {received} | sort -u)"
    rows = [
        ("database rows", f"{account.rows}", f"wc -l < {database}   (exported from {folder}/orders.db)"),
        ("messages delivered", f"{account.delivered}", f"cut -d, -f2 {received} | sort -u | wc -l"),
        ("rows without message", f"{len(account.lost)}", f"comm -23 {known} | wc -l"),
        ("messages without row", f"{len(account.unwanted)}", f"comm -13 {known} | wc -l"),
        (
            "altered",
            f"{len(account.altered)}",
            f"comm -13 <(cut -d, -f2,3 {database} | sort) <(cut -d, -f2,4 {received} | sort -u) | wc -l",
        ),
        (
            "committed twice",
            f"{len(account.twice)}",
            f"cut -d, -f2,3 {received} | sort -u | cut -d, -f1 | uniq -d | wc -l",
        ),
        ("received again", f"{account.redelivered}", f"cat {received} | wc -l   (less those delivered)"),
        ("asked: committed", f"{account.answered_commit}", f"sort -u {asked} | grep -c commit"),
        ("asked: rolled back", f"{account.answered_rollback}", f"sort -u {asked} | grep -c rollback"),
        (
            "orders per second",
            f"{account.orders_per_s:.0f}",
            f"sed -n '1p;$p' {folder}/acknowledged.csv   (times in ms)",
        ),
        ("broker away", f"{account.away_ms / 1000:.2f} s", f"cat {folder}/outage.csv   (killed, ready again)"),
        ("half + row + commit, p50", f"{account.p50_ms:.1f} ms", f"{in_order} | {_nth(account, 0.50)}"),
        ("  p99", f"{account.p99_ms:.1f} ms", f"{in_order} | {_nth(account, 0.99)}"),
        ("  p99 but outage", f"{account.p99_calm_ms:.1f} ms", "the same without the orders that met the outage"),
    ]
    name_width = max(len(name) for name, _, _ in rows)
    value_width = max(len(value) for _, value, _ in rows)
    lines = ["", f"{'':{name_width}}  {'':>{value_width}}  see it yourself"]
    lines += [f"{name:{name_width}}  {value:>{value_width}}  {command}" for name, value, command in rows]
    lines += ["", *(f"allowed: {text}" for text in _allowed(account)), _verdict(account)]
    return "\n".join(lines)


def _allowed(account: Account) -> list[str]:
    """Why some orders came more than once."""
    if not account.redelivered:
        return []
    return [f"{account.redelivered} delivered again: queues changed hands while these were in work"]


def second_table(account: Account, outage: Outage, folder: Path) -> str:
    """What the loss of a master did, with, for each row, how to see it oneself."""
    database, received = f"{folder}/database.csv", f"{folder}/received-*.csv"
    known = f"<(cut -d, -f2 {database} | sort) <(cut -d, -f2 {received} | sort -u)"
    twice = "cut -d, -f1 | uniq -d | wc -l"
    logs = f"{folder}/cluster/coordinator.out"
    rows = [
        ("database rows", f"{account.rows}", f"wc -l < {database}"),
        ("messages delivered", f"{account.delivered}", f"cut -d, -f2 {received} | sort -u | wc -l"),
        ("lost", f"{len(account.lost)}", f"comm -23 {known} | wc -l"),
        ("messages without row", f"{len(account.unwanted)}", f"comm -13 {known} | wc -l"),
        ("committed twice", f"{len(account.twice)}", f"cut -d, -f2,3 {received} | sort -u | {twice}"),
        ("killed, and kept down", outage.killed, f"master of epoch {outage.epoch_before}"),
        ("leads afterwards", outage.leads, f"since epoch {outage.epoch_after}: cat {logs}"),
        ("outage", f"{outage.ms} ms", f"cat {folder}/outage.csv   (killed, first order acknowledged again)"),
        ("half + row + commit, p50", f"{account.p50_ms:.1f} ms", f"cut -d, -f3 {folder}/acknowledged.csv | sort -n"),
    ]
    name_width = max(len(name) for name, _, _ in rows)
    value_width = max(len(value) for _, value, _ in rows)
    lines = ["", f"{'':{name_width}}  {'':>{value_width}}  see it yourself"]
    lines += [f"{name:{name_width}}  {value:>{value_width}}  {command}" for name, value, command in rows]
    return "\n".join([*lines, "", _verdict(account)])


def things_to_try(namesrv: str, http_port: str) -> str:
    """What to do with a broker that was kept."""
    namesrv_flag = f"--namesrv {namesrv}"
    return "\n".join(
        [
            "",
            "The broker is still running; Ctrl-C ends it. Try in another terminal:",
            f"    {_GANTRY} topic list {namesrv_flag}",
            f"    {_GANTRY} group list {namesrv_flag}",
            f"    {_GANTRY} tx ls {namesrv_flag}",
            f"    {_GANTRY} cluster list {namesrv_flag}",
            f"    {_GANTRY} produce Orders 'tea, 250 g' {namesrv_flag}",
            f"    {_GANTRY} consume Orders --group audit --from first --count 3 {namesrv_flag}",
            f"    curl http://127.0.0.1:{http_port}/metrics",
        ]
    )


def _nth(account: Account, share: float) -> str:
    return f"sed -n {min(account.acknowledged, int(account.acknowledged * share) + 1)}p"


def _verdict(account: Account) -> str:
    if account.is_good:
        return "Every row has its message, every message its row."
    first = ", ".join([*account.lost, *account.unwanted, *account.altered, *account.twice][:5])
    return (
        f"BROKEN PROMISE: {len(account.lost)} rows without message, {len(account.unwanted)} messages without row, "
        f"{len(account.altered)} altered, {len(account.twice)} committed twice, such as {first}"
    )
