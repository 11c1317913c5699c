"""`gantry guarantee`: the tables of messages and their effects in a service's database.

    gantry guarantee create  --database postgresql://...             make the tables, or bring them to this version
    gantry guarantee declare --database ... --topic Orders --group packing
    gantry guarantee resend  --database ... --namesrv ... --mail-to ops@example.org ...

`resend` runs until it is stopped, any number of them side by side; `--once` makes one pass.  The others look at the
tables and settle by hand what a person decided; who did it stands in `changed_by`.
"""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from gantry.cli.clientflags import add_client_flags
from gantry.cli.numbers import Number, Whole
from gantry.cli.output import Row, add_output, say_done, show, show_json
from gantry.clock import SystemClock
from gantry.errors import ConfigError
from gantry.guarantee import byhand, migration
from gantry.guarantee.databases import BlockingDatabase, opened
from gantry.guarantee.dialects import dialect_of
from gantry.guarantee.migration import GroupOfTopic
from gantry.guarantee.producing import declare
from gantry.guarantee.statements import FORGOTTEN_MAX, Statements, statements
from gantry.guarantee.steps import Query, Steps

_DAY_MS = 86_400_000


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands."""
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    create = commands.add_parser("create", help="make the tables, or bring them to this version; may be repeated")
    text = "group of topics of version 1 that have open messages and no group at all"
    create.add_argument("--fallback-group", metavar="GROUP", default="", help=text)
    whats = {"declare": "a group has to handle a topic's messages", "undeclare": "it has not, from now on"}
    for name, what in whats.items():
        each = commands.add_parser(name, help=what)
        each.add_argument("--topic", required=True)
        each.add_argument("--group", required=True)
    ways = "how the group gets a message again: its retry topic, that for POP, or the topic (default: %(default)s)"
    declaring = commands.choices["declare"]
    declaring.add_argument("--resend-by", choices=("retry", "pop", "topic"), default="retry", help=ways)
    commands.add_parser("groups", help="the declared groups")
    commands.add_parser("status", help="of each group: how many messages in each state, the oldest open one")
    listing = commands.add_parser("list", help="messages of one list, those due longest first")
    listing.add_argument("what", choices=byhand.LISTS)
    listing.add_argument("--group", metavar="GROUP", default="", help="only of this group")
    listing.add_argument("--count", metavar="N", type=Whole(1, 100_000), default=100, help="at most (%(default)s)")
    commands.add_parser("show", help="all that is known of a message").add_argument("id", metavar="ID")
    texts = ("send it again, as often as a new one", "give up", "its effect is there")
    for name, what in zip(byhand.SETTLING, texts, strict=True):
        each = commands.add_parser(name, help=what)
        each.add_argument("id", metavar="ID")
        each.add_argument("--group", metavar="GROUP", required=True)
    forgetting = commands.add_parser("forget", help="delete what is finished and old")
    old = "days since the message was received; more than retention and the longest replay"
    forgetting.add_argument("--older-than", metavar="DAYS", type=Number(0.0, 36_500.0), required=True, help=old)
    _add_resend(commands.add_parser("resend", help="send again what groups lack, and tell people"))
    for name, each in commands.choices.items():
        address = "postgresql://, mysql://, mariadb://, sqlite:///FILE; @FILE holds it ($GANTRY_GUARANTEE_DATABASE)"
        each.add_argument("--database", default=os.environ.get("GANTRY_GUARANTEE_DATABASE", ""), help=address)
        if name in ("list", "status", "resend"):
            most = "how often a message is sent again (default: %(default)s)"
            each.add_argument("--resends-max", metavar="N", type=Whole(0, 1000), default=5, help=most)
            stuck = "a message that arrived is stuck after so long (default: %(default)g)"
            each.add_argument("--stuck-after", metavar="SECONDS", type=Number(0.0, 1e8), default=600.0, help=stuck)
        add_output(each)


def _add_resend(parser: argparse.ArgumentParser) -> None:
    from gantry.cli.logs import add_logs

    add_client_flags(parser)
    add = parser.add_argument
    add("--once", action="store_true", help="one pass; exit code 1 when something was refused")
    add("--every", metavar="SECONDS", type=Number(0.1, 86_400.0), default=10.0, help="between passes (%(default)g)")
    add("--group", metavar="GROUP", action="append", default=[], help="only of this group; may be repeated")
    pause = "before a message is sent again to the same group; doubles each time (%(default)g)"
    add("--backoff", metavar="SECONDS", type=Number(0.0, 1e7), default=60.0, help=pause)
    behind = "what groups are expected to be behind (%(default)g)"
    add("--backlog", metavar="SECONDS", type=Number(0.0, 1e7), default=0.0, help=behind)
    add("--bind", metavar="ADDR", default="0.0.0.0", help="listen on this address only (all)")
    add("--http-port", metavar="PORT", type=Whole(-1, 65_535), default=-1, help="/metrics, /readyz (none)")
    add("--mail-server", metavar="URL", default=os.environ.get("GANTRY_GUARANTEE_MAIL", ""), help="smtp://, smtps://")
    add("--mail-from", metavar="ADDRESS", default="", help="the sender of mails")
    add("--mail-to", metavar="ADDRESS", action="append", default=[], help="a recipient; may be repeated")
    add("--webhook", metavar="URL", default="", help="is posted digests, signed")
    add("--webhook-secret-file", metavar="FILE", default="", help="the key that signs them")
    add_logs(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand. Return the exit code."""
    if not arguments.database:
        raise ConfigError("--database is missing: postgresql://USER:PASSWORD@HOST/NAME, mysql://... or sqlite:///FILE")
    dialect, connect = opened(arguments.database)
    if arguments.command == "create":
        return _create(arguments, dialect.name, connect)
    database, say = BlockingDatabase(connect), statements(dialect, "named")
    database.run_now(_checked(say))
    if arguments.command == "resend":
        from gantry.cli.guaranteeresend import run_resend

        return run_resend(arguments, database, say)
    return _COMMANDS[arguments.command](arguments, database, say)


def _create(arguments: argparse.Namespace, dialect: str, connect: Callable[[], Any]) -> int:
    groups: tuple[GroupOfTopic, ...] = ()
    with closing(connect()) as connection:
        moved = migration.install(connection, dialect_of(dialect), _now_ms(), groups, arguments.fallback_group)
    say_done("tables", "guarantee", f"ready, {moved} messages of version 1 moved", arguments.output)
    return 0


def _declare(arguments: argparse.Namespace, database: BlockingDatabase, say: Statements) -> int:
    named = (arguments.topic, arguments.group, arguments.resend_by)
    database.run_now(declare(say, *named, _now_ms(), _operator()))
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
    limits: dict[str, object] = {
        "resends_max": arguments.resends_max,
        "before_ms": now_ms - int(arguments.stuck_after * 1000),
        "rows_max": arguments.count,
    }
    wanted = [arguments.group] if arguments.group else _declared(database, say)
    found = [
        row for group in wanted for row in database.run_now(byhand.listed(say, arguments.what, group, now_ms, limits))
    ]
    show(_rows(found), arguments.output, empty=f"nothing is {arguments.what}")
    return 0


def _show(arguments: argparse.Namespace, database: BlockingDatabase, say: Statements) -> int:
    found = database.run_now(byhand.shown(say, arguments.id))
    if found is None:
        print(f"gantry: no message {arguments.id} in these tables", file=sys.stderr)
        return 1
    show_json(found)
    return 0


def _settle(arguments: argparse.Namespace, database: BlockingDatabase, say: Statements) -> int:
    how, group = arguments.command, arguments.group
    done = database.run_now(byhand.settle(say, how, arguments.id, group, _now_ms(), _operator()))
    return _settled(arguments, "message", arguments.id, f"{_DONE[how]} for {group}", done)


def _forget(arguments: argparse.Namespace, database: BlockingDatabase, say: Statements) -> int:
    before_ms, count, stubs = _now_ms() - int(arguments.older_than * _DAY_MS), 0, 0
    for group in _declared(database, say):
        while (deleted := database.run_now(byhand.forget(say, group, before_ms))) > 0:
            count += deleted
            if deleted < FORGOTTEN_MAX:
                break
    while (deleted := database.run_now(byhand.forget_stubs(say, before_ms, 500))) > 0:
        stubs += deleted
    show([{"log_rows": count, "messages": stubs}], arguments.output)
    return 0


_DONE = {"rearm": "is sent again", "close": "closed", "confirm": "confirmed"}
_COMMANDS: dict[str, Callable[[argparse.Namespace, BlockingDatabase, Statements], int]] = {
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


def _checked(say: Statements) -> Steps[None]:
    rows = (yield Query(say.version, {})).rows
    migration.check_version(int(str(rows[0][0])) if rows else 0)


def _changed(text: str, values: dict[str, object]) -> Steps[int]:
    return (yield Query(text, values)).changed


def _declared(database: BlockingDatabase, say: Statements) -> list[str]:
    return sorted({str(row["consumer_group"]) for row in database.run_now(byhand.groups(say))})


def _rows(found: list[byhand.Found]) -> list[Row]:
    return found  # type: ignore[return-value]


def _time(at_ms: object) -> str | None:
    if at_ms is None:
        return None
    return datetime.fromtimestamp(int(str(at_ms)) / 1000, UTC).isoformat(timespec="seconds")


def _now_ms() -> int:
    return SystemClock().now_ms()


def _operator() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return f"user {os.getuid()}"
