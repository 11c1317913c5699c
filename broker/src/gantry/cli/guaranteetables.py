"""What `gantry guarantee` does with the tables: make and migrate them, look at them, settle by hand, delete."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from gantry.cli.output import Cell, Row, say_done, show, show_json, show_one
from gantry.clock import SystemClock
from gantry.errors import ConfigError, GantryError
from gantry.guarantee import byhand, migration, rules
from gantry.guarantee.databases import BlockingDatabase
from gantry.guarantee.dialects import Dialect
from gantry.guarantee.housekeeping import FORGOTTEN_MAX
from gantry.guarantee.producing import declare
from gantry.guarantee.statements import Statements
from gantry.guarantee.steps import Query, Steps

_DAY_MS = 86_400_000
_STUBS_AT_ONCE = 500
_KEYS_SHOWN = 40
# Of a delivery in a table, which has no room for all.
_COLUMNS = ("message_id", "consumer_group", "state", "topic", "message_keys", "attempts", "next_resend_at_ms")
_DONE = {"rearm": "is sent again", "close": "closed", "confirm": "confirmed"}


def create(arguments: argparse.Namespace, connection: Any, dialect: Dialect) -> int:
    """Make the tables, or migrate them. Return the exit code."""
    moved = migration.install(connection, dialect, _now_ms(), (), arguments.fallback_group)
    say_done("tables", "guarantee", f"ready, {moved} messages of version 1 moved", arguments.output)
    return 0


def check(connection: Any, dialect: Dialect) -> None:
    """Raise GantryError when the tables are not there or of another version."""
    version, _ = migration.found_version(connection.cursor(), dialect)
    if version == 0:
        raise GantryError("this database has no tables of the guarantee; make them with: gantry guarantee create")
    migration.check_version(version)


def _declare(arguments: argparse.Namespace, database: BlockingDatabase, say: Statements) -> int:
    named = (arguments.topic, arguments.group, arguments.resend_by)
    try:
        database.run_now(declare(say, *named, _now_ms(), _operator(arguments)))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    say_done("group", arguments.group, f"declared for {arguments.topic}", arguments.output)
    return 0


def _undeclare(arguments: argparse.Namespace, database: BlockingDatabase, say: Statements) -> int:
    values = {"topic": arguments.topic, "consumer_group": arguments.group}
    changed = database.run_now(_changed(say.undeclare, values))
    return _settled(arguments, "group", arguments.group, f"undeclared for {arguments.topic}", changed == 1)


def _groups(arguments: argparse.Namespace, database: BlockingDatabase, say: Statements) -> int:
    show(_rows(database.run_now(byhand.groups(say))), arguments.output, empty="no group is declared")
    return 0


def _status(arguments: argparse.Namespace, database: BlockingDatabase, say: Statements) -> int:
    found = database.run_now(byhand.totals(say, _now_ms()))
    for row in found:
        row["oldest"] = _time(row.pop("oldest_ms"))
    show(_rows(found), arguments.output, empty="no message yet")
    return 0


def _list(arguments: argparse.Namespace, database: BlockingDatabase, say: Statements) -> int:
    now_ms = _now_ms()
    after_s = arguments.overdue_after if arguments.what == "overdue" else arguments.stuck_after
    limits: dict[str, object] = {"resends_max": arguments.resends_max, "before_ms": now_ms - int(after_s * 1000)}
    wanted = [arguments.group] if arguments.group else database.run_now(byhand.every_group(say, now_ms))
    found: list[byhand.Found] = []
    for group in wanted:
        if (left := arguments.count - len(found)) > 0:
            found += database.run_now(byhand.listed(say, arguments.what, group, now_ms, {**limits, "rows_max": left}))
    if arguments.output == "table" and arguments.what != "unsettled":
        found = [_short(row) for row in found]
    show(_rows(found), arguments.output, empty=f"nothing is {arguments.what}")
    return 0


def _show(arguments: argparse.Namespace, database: BlockingDatabase, say: Statements) -> int:
    found = database.run_now(byhand.shown(say, arguments.id))
    if found is None:
        print(f"gantry: no message {arguments.id} in these tables", file=sys.stderr)
        return 1
    if arguments.output == "json":
        show_json(found)
        return 0
    deliveries, logged = found.pop("deliveries"), found.pop("log")
    show_one(_rows([found])[0], "table")
    assert isinstance(deliveries, list) and isinstance(logged, list)
    for rows, columns, empty in (
        (deliveries, "consumer_group state resends copy_topic broker queue_id queue_offset changed_by", "for no group"),
        (logged, "consumer_group effect owner topic broker queue_id queue_offset", "no group has received it"),
    ):
        print()
        show([{name: row[name] for name in columns.split()} for row in rows], "table", empty=empty)
    return 0


def _settle(arguments: argparse.Namespace, database: BlockingDatabase, say: Statements) -> int:
    how, group = arguments.command, arguments.group
    had_no_effect = how == "rearm" and arguments.had_no_effect
    decision = byhand.DecisionByHand(how, arguments.id, group, _now_ms(), _operator(arguments), had_no_effect)
    try:
        database.run_now(byhand.settle(say, decision))
    except byhand.UndoneError:
        return _settled(arguments, "message", arguments.id, "", False)
    return _settled(arguments, "message", arguments.id, f"{_DONE[how]} for {group}", True)


def _forget(arguments: argparse.Namespace, database: BlockingDatabase, say: Statements) -> int:
    now_ms = _now_ms()
    before_ms, count, stubs = now_ms - int(arguments.older_than * _DAY_MS), 0, 0
    for group in database.run_now(byhand.every_group(say, now_ms)):
        deleted = FORGOTTEN_MAX
        while deleted >= FORGOTTEN_MAX:
            deleted = database.run_now(byhand.forget(say, group, before_ms))
            count += deleted
    while (deleted := database.run_now(byhand.forget_stubs(say, before_ms, _STUBS_AT_ONCE))) > 0:
        stubs += deleted
    show([{"log_rows": count, "messages": stubs}], arguments.output)
    return 0


COMMANDS: dict[str, Callable[[argparse.Namespace, BlockingDatabase, Statements], int]] = {
    "declare": _declare,
    "undeclare": _undeclare,
    "groups": _groups,
    "status": _status,
    "list": _list,
    "show": _show,
    "forget": _forget,
    **dict.fromkeys(byhand.SETTLING, _settle),
}


def _settled(arguments: argparse.Namespace, kind: str, name: str, result: str, done: bool) -> int:
    if not done:
        print(f"gantry: {kind} {name} is not there, or settled already", file=sys.stderr)
        return 1
    say_done(kind, name, result, arguments.output)
    return 0


def _changed(text: str, values: dict[str, object]) -> Steps[int]:
    return (yield Query(text, values)).changed


def _short(row: byhand.Found) -> byhand.Found:
    found = {name: row[name] for name in _COLUMNS}
    keys = str(found["message_keys"])
    found["message_keys"] = keys if len(keys) <= _KEYS_SHOWN else keys[:_KEYS_SHOWN] + "..."
    found["next_resend"] = _time(found.pop("next_resend_at_ms"))
    return found


def _rows(found: list[byhand.Found]) -> list[Row]:
    return [{name: _cell(value) for name, value in row.items()} for row in found]


def _cell(value: object) -> Cell:
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _time(at_ms: object) -> str | None:
    if at_ms is None:
        return None
    try:
        return datetime.fromtimestamp(int(str(at_ms)) / 1000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):  # written by a clock that is far off
        return f"{at_ms} ms"


def _now_ms() -> int:
    return SystemClock().now_ms()


def _operator(arguments: argparse.Namespace) -> str:
    try:
        found = arguments.by or getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        found = f"user {os.getuid()}"
    try:
        rules.check_texts(changed_by=found)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return found
