"""`gantry consume TOPIC`: receive messages as a member of a consumer group, and print them.

The broker keeps the group's progress: a second call continues where the first ended.  With --count or --idle the
command ends by itself, otherwise with Ctrl-C.  A message is acknowledged after it was printed, so that a broken pipe
loses none.

The topic is looked up first: when no name server answers within --timeout, the command ends with exit code 3.  It waits
for a topic that does not exist yet.  While it runs, it continues through restarts of brokers and name servers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys

from gantry.cli.clientflags import add_client_flags, refuse, run_client
from gantry.cli.numbers import DAY_S, Number, Whole
from gantry.cli.output import add_output
from gantry.client.admin import Admin
from gantry.client.consumer import MODES, Consumer, ConsumerSettings, ReceivedMessage, Sql, StartFrom
from gantry.errors import RefusedError
from gantry.model.names import group_fault, topic_fault
from gantry.wire.codes import ResponseCode

_STARTS = {"last": StartFrom.LAST, "first": StartFrom.FIRST}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags for topic, group, filter, start and end."""
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--group", default="gantry-cli", help="the consumer group (default: %(default)s)")
    wanted = parser.add_mutually_exclusive_group()
    wanted.add_argument("--tags", metavar="EXPRESSION", default="*", help="such as 'paid || refunded' (default: all)")
    wanted.add_argument("--sql", metavar="EXPRESSION", help="on properties, such as \"amount > 100 AND region = 'eu'\"")
    parser.add_argument(
        "--from",
        dest="start",
        choices=sorted(_STARTS),
        default="first",
        help="where a group begins that is new here (default: %(default)s)",
    )
    parser.add_argument(
        "--mode", choices=MODES, default="pull",
        help="pull: a share of the queues; pop: messages, shared one by one by the group (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--count", metavar="N", type=Whole(0), default=0, help="end after so many messages (0: never)")
    wait = Number(0.0, DAY_S)
    parser.add_argument(
        "--idle", metavar="SECONDS", type=wait, default=0.0, help="end when nothing came for so long (0: never)"
    )
    add_client_flags(parser)
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Receive and print messages. Return the exit code."""
    refuse(topic_fault(arguments.topic))
    refuse(group_fault(arguments.group))
    return run_client(_consume(arguments))


async def _consume(arguments: argparse.Namespace) -> int:
    wanted = arguments.tags if arguments.sql is None else Sql(arguments.sql)
    await _look_up(arguments)
    settings = ConsumerSettings(start_from=_STARTS[arguments.start], request_timeout_s=arguments.timeout)
    subscription, mode = {arguments.topic: wanted}, arguments.mode
    async with Consumer(
        arguments.group, nameserver=arguments.namesrv, subscription=subscription, settings=settings, mode=mode
    ) as consumer:
        printing = asyncio.ensure_future(_print_messages(consumer, arguments))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, printing.cancel)
        await asyncio.wait({printing})
        if not printing.cancelled():
            printing.result()
    return 0


async def _look_up(arguments: argparse.Namespace) -> None:
    """Check that a name server answers, else UnreachableError. A missing topic is only reported on stderr."""
    async with Admin(nameserver=arguments.namesrv, timeout_s=arguments.timeout) as admin:
        try:
            await admin.route(arguments.topic)
        except RefusedError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            print(f"gantry: no broker has the topic {arguments.topic} yet; waiting for it", file=sys.stderr)


async def _print_messages(consumer: Consumer, arguments: argparse.Namespace) -> None:
    messages = aiter(consumer)
    count = 0
    try:
        while not arguments.count or count < arguments.count:
            async with asyncio.timeout(arguments.idle or None):
                message = await anext(messages)
            _print(message, arguments.output)
            await message.ack()
            count += 1
    except (TimeoutError, StopAsyncIteration):
        return


def _print(message: ReceivedMessage, output: str) -> None:
    if output == "json":
        line = json.dumps(_as_json(message), ensure_ascii=False)
    else:
        place = f"{message.queue.broker_name}/{message.queue.queue_id}@{message.queue_offset}"
        tags = f" [{message.tags}]" if message.tags else ""
        line = f"{place} {message.message_id}{tags} {message.body.decode('utf-8', 'backslashreplace')}"
    print(line, flush=True)


def _as_json(message: ReceivedMessage) -> dict[str, object]:
    return {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queue": message.queue.queue_id,
        "offset": message.queue_offset,
        "message_id": message.message_id,
        "offset_message_id": message.stored.offset_message_id,
        "tags": message.tags,
        "keys": list(message.keys),
        "attempt": message.attempt,
        "born_ms": message.stored.born_ms,
        "store_ms": message.stored.store_ms,
        "properties": dict(message.properties),
        "body": message.body.decode("utf-8", "backslashreplace"),
    }
