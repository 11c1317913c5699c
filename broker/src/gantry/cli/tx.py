"""`gantry tx ls|show|commit|rollback|rearm|resolve`: transactions without an outcome, and settling one by hand.

`ls` shows open transactions, oldest first, or with --state given-up those whose producers did not answer in time.  A
producer group that other kinds of producers use too is reported on stderr.  An ID is the message id, the offset id of
the half message, or its root.  Before you settle one by hand, check its outcome in the producer's database.  The broker
writes an audit line with the operator's name.  Batches of sinks (`resolve`) are in the module `txresolve`.
"""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from collections.abc import Mapping, Sequence

from gantry.cli import txresolve
from gantry.cli.clientflags import add_client_flags, refuse, run_client
from gantry.cli.numbers import Whole
from gantry.cli.output import Row, add_output, say_done, show, show_json, show_one
from gantry.client.admin import Admin
from gantry.client.requests.tx_requests import COMMIT, GIVEN_UP, OPEN, REARM, ROLLBACK, TransactionInfo
from gantry.errors import ConfigError
from gantry.model.names import group_fault, topic_fault

_DONE = {COMMIT: "committed", ROLLBACK: "rolled back", REARM: "armed again"}


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    listing = commands.add_parser("ls", help="transactions without an outcome, oldest first")
    listing.add_argument("--state", choices=(OPEN, GIVEN_UP), default=OPEN, help="(default: %(default)s)")
    listing.add_argument("--group", metavar="NAME", default="", help="only of this producer group")
    listing.add_argument("--topic", metavar="NAME", default="", help="only for this topic")
    count = "so many of each broker at most (default: %(default)s)"
    listing.add_argument("--count", metavar="N", type=Whole(1), default=1000, help=count)
    commands.add_parser("show", help="one with its properties and the beginning of its body")
    commands.add_parser(COMMIT, help="deliver its message")
    commands.add_parser(ROLLBACK, help="never deliver its message")
    commands.add_parser(REARM, help="ask the producers again about one that was given up")
    txresolve.configure(
        commands.add_parser("resolve", help="sinks (of Spark) and what is open of them; decide a batch by hand")
    )
    for name, each in commands.choices.items():
        if name not in ("ls", "resolve"):
            each.add_argument("id", metavar="ID")
            each.add_argument("--broker", metavar="NAME", help="the one on this broker, if several have it")
        add_client_flags(each)
        add_output(each)


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand. Return the exit code."""
    if arguments.command == "resolve":
        return txresolve.run(arguments, operator())
    if arguments.command == "ls":
        if arguments.group:
            refuse(group_fault(arguments.group))
        if arguments.topic:
            refuse(topic_fault(arguments.topic))
    return run_client(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    async with Admin(nameserver=arguments.namesrv, timeout_s=arguments.timeout) as admin:
        if arguments.command == "ls":
            await _list(admin, arguments)
            return 0
        found = await admin.find_transactions(arguments.id)
        one = _chosen(found, arguments.id, arguments.broker)
        if one is None:
            print(f"gantry: no transaction {arguments.id}", file=sys.stderr)
            return 1
        if arguments.command == "show":
            if arguments.output == "json":
                show_json({**_whole(one), "properties": dict(one.properties)})
            else:
                show_one({**_whole(one), "properties": _joined(one.properties)}, arguments.output)
            return 0
        await admin.settle_transaction(one, arguments.command, operator())
        say_done("transaction", one.id, _DONE[arguments.command], arguments.output)
    return 0


async def _list(admin: Admin, arguments: argparse.Namespace) -> None:
    found = await admin.transactions(
        arguments.state, group=arguments.group, topic=arguments.topic, count_max=arguments.count
    )
    show([_row(one) for one in found], arguments.output, empty=f"no transaction is {arguments.state}")
    for violation in await admin.group_violations():
        print(f"gantry: {violation}; give each kind a group of its own", file=sys.stderr)


def _chosen(found: Sequence[TransactionInfo], wanted: str, broker: str | None) -> TransactionInfo | None:
    """Return the wanted transaction, None when there is none; ConfigError when several brokers have one."""
    named = [one for one in found if broker is None or one.broker == broker]
    if len(named) > 1:
        places = ", ".join(one.broker for one in named)
        raise ConfigError(f"{wanted}: each of {places} has one; name it by its message id, or say --broker")
    return named[0] if named else None


def operator() -> str:
    """Return the user's name, for the audit line."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return f"user {os.getuid()}"


def _row(one: TransactionInfo) -> Row:
    return {
        "id": one.id,
        "topic": one.topic,
        "producerGroup": one.producer_group,
        "ageMs": one.age_ms,
        "checks": one.checks,
        "keys": one.keys,
        "broker": one.broker,
        "logOffset": one.log_offset,
        "halfOffset": one.half_offset,
        "state": one.state,
    }


def _whole(one: TransactionInfo) -> Row:
    body = one.body.decode("utf-8", "backslashreplace")
    return {**_row(one), "root": one.root, "movable": one.is_movable, "properties": "", "body": body}


def _joined(properties: Mapping[str, str]) -> str:
    return " ".join(f"{name}={text}" for name, text in sorted(properties.items()))
