"""`gantry delay ls|cancel`: list delayed messages, and cancel one.

`ls` shows the messages that are due first at the top; `level` is 0 for a message with its own delivery time.  `cancel`
takes a message id or offset id; the message is not delivered, and the broker writes an audit line with the operator's
name.
"""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from datetime import UTC, datetime

from gantry.cli.clientflags import add_client_flags, refuse, run_client
from gantry.cli.numbers import Whole
from gantry.cli.output import Row, add_output, say_done, show
from gantry.client.admin import Admin
from gantry.client.requests.delay_requests import DelayedInfo
from gantry.model.names import topic_fault


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    listing = commands.add_parser("ls", help="messages that are not delivered yet, the next one first")
    listing.add_argument("--topic", metavar="NAME", default="", help="only for this topic")
    count = "so many of each broker, not always its earliest (default: %(default)s)"
    listing.add_argument("--count", metavar="N", type=Whole(1), default=1000, help=count)
    cancelling = commands.add_parser("cancel", help="have one not delivered")
    cancelling.add_argument("id", metavar="ID")
    for each in commands.choices.values():
        add_client_flags(each)
        add_output(each)


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand. Return the exit code."""
    if arguments.command == "ls":
        if arguments.topic:
            refuse(topic_fault(arguments.topic))
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
        say_done("message", arguments.id, "cancelled", arguments.output)
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
