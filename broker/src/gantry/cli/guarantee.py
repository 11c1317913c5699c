"""`gantry guarantee`: the tables of messages and their effects in a service's database.

    gantry guarantee create  --database postgresql://...             make the tables, or bring them to this version
    gantry guarantee declare --database ... --topic Orders --group packing
    gantry guarantee resend  --database ... --namesrv ... --mail-to ops@example.org ...

`resend` runs until it is stopped, any number of them side by side; `--once` makes one pass.  The others look at the
tables and settle by hand what a person decided; who did it stands in `changed_by`.  Their work is in `guaranteetables`.
"""

from __future__ import annotations

import argparse
import os
from contextlib import closing

from gantry.cli.numbers import Number, Whole
from gantry.cli.output import add_output
from gantry.errors import ConfigError, GantryError

LISTS = ("exhausted", "stuck", "overdue", "unsettled", "open", "closed", "legacy")
SETTLING = {"rearm": "send it again, as often as a new one", "close": "give up", "confirm": "its effect is there"}


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
    listing.add_argument("what", choices=LISTS)
    listing.add_argument("--group", metavar="GROUP", default="", help="only of this group")
    listing.add_argument("--count", metavar="N", type=Whole(1, 100_000), default=100, help="at most (%(default)s)")
    commands.add_parser("show", help="all that is known of a message").add_argument("id", metavar="ID")
    for name, what in SETTLING.items():
        each = commands.add_parser(name, help=what)
        each.add_argument("id", metavar="ID")
        each.add_argument("--group", metavar="GROUP", required=True)
    sure = "the effect outside of the database whose outcome is unknown did not happen: the next copy has it"
    commands.choices["rearm"].add_argument("--had-no-effect", action="store_true", help=sure)
    for name in ("declare", *SETTLING):
        who = "who does it, for the column changed_by (default: the user of this process)"
        commands.choices[name].add_argument("--by", metavar="NAME", default="", help=who)
    forgetting = commands.add_parser("forget", help="delete what is finished and old")
    old = "days since the message was received; more than retention and the longest replay"
    forgetting.add_argument("--older-than", metavar="DAYS", type=Number(0.0, 36_500.0), required=True, help=old)
    _add_resend(commands.add_parser("resend", help="send again what groups lack, and tell people"))
    for name, each in commands.choices.items():
        address = "postgresql://, mysql://, mariadb://, sqlite:///FILE; @FILE holds it ($GANTRY_GUARANTEE_DATABASE)"
        each.add_argument("--database", metavar="URL", default="", help=address)
        if name in ("list", "resend"):
            _add_limits(each)
        add_output(each)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    most = "how often a message is sent again (default: %(default)s)"
    parser.add_argument("--resends-max", metavar="N", type=Whole(0, 1000), default=5, help=most)
    stuck = "a message that arrived is stuck after so long (default: %(default)g)"
    parser.add_argument("--stuck-after", metavar="SECONDS", type=Number(0.0, 1e8), default=600.0, help=stuck)
    overdue = "a message that is due and that its group did not reach is overdue after so long (default: %(default)g)"
    parser.add_argument("--overdue-after", metavar="SECONDS", type=Number(0.0, 1e8), default=3600.0, help=overdue)


def _add_resend(parser: argparse.ArgumentParser) -> None:
    from gantry.cli.clientflags import add_client_flags
    from gantry.cli.logs import add_logs

    add_client_flags(parser)
    add = parser.add_argument
    add("--once", action="store_true", help="one pass; exit code 1 when something was refused or not told")
    add("--every", metavar="SECONDS", type=Number(0.1, 86_400.0), default=10.0, help="between passes (%(default)g)")
    add("--group", metavar="GROUP", action="append", default=[], help="only of this group; may be repeated")
    pause = "before a message is sent again to the same group; doubles each time (%(default)g)"
    add("--backoff", metavar="SECONDS", type=Number(0.0, 1e7), default=60.0, help=pause)
    behind = "what groups are expected to be behind (%(default)g)"
    add("--backlog", metavar="SECONDS", type=Number(0.0, 1e7), default=0.0, help=behind)
    tell = "between looks for messages of which people are told (%(default)g)"
    add("--tell-every", metavar="SECONDS", type=Number(0.1, 86_400.0), default=60.0, help=tell)
    add("--bind", metavar="ADDR", default="0.0.0.0", help="listen on this address only (all)")
    add("--http-port", metavar="PORT", type=Whole(-1, 65_535), default=-1, help="/metrics, /readyz (-1: none)")
    mail = "smtp://USER:PASSWORD@HOST:PORT or smtps://; @FILE holds it ($GANTRY_GUARANTEE_MAIL)"
    add("--mail-server", metavar="URL", default="", help=mail)
    add("--mail-from", metavar="ADDRESS", default="", help="the sender of mails")
    add("--mail-to", metavar="ADDRESS", action="append", default=[], help="a recipient; may be repeated")
    add("--webhook", metavar="URL", default="", help="is posted digests, signed; @FILE holds it")
    add("--webhook-secret-file", metavar="FILE", default="", help="the key that signs them")
    add_logs(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand. Return the exit code."""
    from gantry.guarantee.databases import BlockingDatabase, errors_of, opened
    from gantry.guarantee.migration import MigrationError
    from gantry.guarantee.statements import statements

    address = arguments.database or os.environ.get("GANTRY_GUARANTEE_DATABASE", "")
    if not address:
        raise ConfigError("--database is missing: postgresql://USER:PASSWORD@HOST/NAME, mysql://... or sqlite:///FILE")
    dialect, connect = opened(address, may_create=arguments.command == "create")
    database, say = BlockingDatabase(connect), statements(dialect, "named")
    try:
        if arguments.command == "resend":
            from gantry.cli.guaranteeresend import run_resend

            return run_resend(arguments, database, say)
        from gantry.cli.guaranteetables import COMMANDS, check, create

        with closing(connect()) as connection:
            if arguments.command == "create":
                return create(arguments, connection, dialect)
            check(connection, dialect)
        return COMMANDS[arguments.command](arguments, database, say)
    except MigrationError as error:
        raise GantryError(str(error)) from error
    except errors_of(dialect) as error:
        raise GantryError(f"the database: {type(error).__name__}: {' '.join(str(error).split())}") from error
