"""`gantry delay ls|cancel`: messages that wait for their delivery, and taking one back by hand.

`ls` shows those that are due first at the top; `level` is 0 where a message has a time of its own.  `cancel` has one
not delivered, named by its message id or offset id; the broker writes an audit line with the operator's name.
"""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from datetime import UTC, datetime

from gantry.cli.clientflags import add_client_flags, refuse, run_client
from gantry.cli.output import Row, add_output, show
from gantry.client.admin import Admin
from gantry.client.delayadmin import DelayedInfo
from gantry.errors import ConfigError
from gantry.model.names import topic_fault


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands."""
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    listing = commands.add_parser("ls", help="messages that are not delivered yet, the next one first")
    listing.add_argument("--topic", metavar="NAME", default="", help="only for this topic")
    listing.add_argument(
        "--count", metavar="N", type=int, default=1000, help="so many of each broker at most (default: %(default)s)"
    )
    add_output(listing)
    cancelling = commands.add_parser("cancel", help="have one not delivered")
    cancelling.add_argument("id", metavar="ID")
    for each in commands.choices.values():
        add_client_flags(each)


def run(arguments: argparse.Namespace) -> int:
    """Do what the subcommand says."""
    if arguments.command == "ls":
        if arguments.topic:
            refuse(topic_fault(arguments.topic))
        if arguments.count < 1:
            raise ConfigError(f"--count {arguments.count}: expected at least 1")
    return run_client(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    async with Admin(nameserver=arguments.namesrv, timeout_s=arguments.timeout) as admin:
        if arguments.command == "ls":
            found = await admin.delayed(topic=arguments.topic, count_max=arguments.count)
            found.sort(key=lambda one: one.due_ms)
            show([_row(one) for one in found], arguments.output, empty="no message waits for its delivery")
            return 0
        if not await admin.cancel_delayed(arguments.id, _operator()):
            print(f"gantry: no message {arguments.id} waits for its delivery", file=sys.stderr)
            return 1
        print(f"{arguments.id}: will not be delivered", file=sys.stderr)
    return 0


def _operator() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return f"user {os.getuid()}"


def _row(one: DelayedInfo) -> Row:
    return {
        "id": one.id,
        "topic": one.topic,
        "queue": one.queue_id,
        "level": one.level,
        "due": datetime.fromtimestamp(one.due_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        "dueMs": one.due_ms,
        "keys": one.keys,
        "tags": one.tags,
        "broker": one.broker,
    }
