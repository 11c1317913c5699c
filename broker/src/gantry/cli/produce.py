"""`gantry produce TOPIC [BODY ...]`: send messages and print where they were stored.

Without a body every line of stdin is a message, and up to --in-flight of them are sent at the same time, so that a file
is sent at full speed.  Bodies are bytes and need not be UTF-8.  A message that could not be sent is reported on stderr;
the others are still sent.  The exit code is then 1, or 3 when only answers are missing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator

from gantry.cli.clientflags import add_client_flags, run_client
from gantry.cli.errors import FAILED, NO_ANSWER
from gantry.cli.numbers import Whole
from gantry.cli.output import Row, add_output, show
from gantry.client.producer import Message, Producer, ProducerSettings, SendResult
from gantry.errors import ConfigError, GantryError, OutcomeUnknownError, UnreachableError

HAS_MANY_WORDS = True  # TOPIC, options, BODY ... in any order
_IN_FLIGHT_MAX = 1024  # a producer has no more sends at the same time


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("body", metavar="BODY", nargs="*", help="the messages; none: each line of stdin is one")
    parser.add_argument("--tags", default="", help="the tag that consumers filter by")
    parser.add_argument("--keys", metavar="A,B", default="", help="keys that the messages are looked up by")
    parser.add_argument(
        "--property", metavar="NAME=VALUE", action="append", default=[], help="a property of your own; may be repeated"
    )
    parser.add_argument("--key", default="", help="messages with the same one go to the same queue, in order")
    parser.add_argument("--group", default="gantry-cli", help="the producer group (default: %(default)s)")
    parser.add_argument(
        "--in-flight",
        metavar="N",
        type=Whole(1, _IN_FLIGHT_MAX),
        default=64,
        help="messages under way at once (default: %(default)s)",
    )
    add_client_flags(parser)
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Send all messages. Return the exit code."""
    return run_client(_produce(arguments, _messages(arguments)))


def _messages(arguments: argparse.Namespace) -> Iterator[Message]:
    properties = {}
    for text in arguments.property:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--property {text!r}: expected NAME=VALUE")
        properties[name] = value
    keys = tuple(key for key in arguments.keys.split(",") if key)
    bodies = map(os.fsencode, arguments.body) if arguments.body else _lines()
    for body in bodies:
        yield Message(arguments.topic, body, arguments.tags, keys, properties)


def _lines() -> Iterator[bytes]:
    for line in sys.stdin.buffer:
        if body := line.rstrip(b"\r\n"):
            yield body


async def _produce(arguments: argparse.Namespace, messages: Iterator[Message]) -> int:
    settings = ProducerSettings(timeout_s=arguments.timeout)
    async with Producer(arguments.group, nameserver=arguments.namesrv, settings=settings) as producer:
        # With --key the order matters, so messages are sent one after the other.
        width = 1 if arguments.key else arguments.in_flight
        results: list[SendResult] = []
        failures: list[GantryError | ValueError] = []
        exhausted = False
        while not exhausted:
            batch = [message for _, message in zip(range(width), messages, strict=False)]
            exhausted = len(batch) < width
            sends = (producer.send(message, key=arguments.key) for message in batch)
            for outcome in await asyncio.gather(*sends, return_exceptions=True):
                if isinstance(outcome, SendResult):
                    results.append(outcome)
                    continue
                if not isinstance(outcome, GantryError | ValueError):
                    raise outcome
                failures.append(outcome)
                print(f"gantry: not sent: {outcome}", file=sys.stderr)
    rows: list[Row] = [
        {
            "message_id": result.message_id,
            "broker": result.queue.broker_name,
            "queue": result.queue.queue_id,
            "offset": result.queue_offset,
        }
        for result in results
    ]
    show(rows, arguments.output, empty="nothing sent")
    if not failures:
        return 0
    return NO_ANSWER if all(isinstance(one, UnreachableError | OutcomeUnknownError) for one in failures) else FAILED
