"""`gantry consume TOPIC`: receive messages as a member of a consumer group, and print them.

The group's progress is kept by the broker: a second call goes on where the first ended.  With --count or --idle it
ends by itself; otherwise Ctrl-C ends it, and what was printed is confirmed.  A message is confirmed after it was
printed, so that a pipe that breaks loses none.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal

from gantry.cli.clientflags import add_client_flags, run_client
from gantry.cli.output import add_output
from gantry.client.consumer import Consumer, ConsumerSettings, ReceivedMessage, Sql, StartFrom

_STARTS = {"last": StartFrom.LAST, "first": StartFrom.FIRST}


def configure(parser: argparse.ArgumentParser) -> None:
    """Whom to listen to, and for how long."""
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
    parser.add_argument("--count", metavar="N", type=int, default=0, help="end after so many messages")
    parser.add_argument("--idle", metavar="SECONDS", type=float, default=0.0, help="end when nothing came for so long")
    add_client_flags(parser)
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Receive and print."""
    return run_client(_consume(arguments))


async def _consume(arguments: argparse.Namespace) -> int:
    wanted = arguments.tags if arguments.sql is None else Sql(arguments.sql)
    settings = ConsumerSettings(start_from=_STARTS[arguments.start])
    async with Consumer(
        arguments.group, nameserver=arguments.namesrv, subscription={arguments.topic: wanted}, settings=settings
    ) as consumer:
        printing = asyncio.ensure_future(_print_messages(consumer, arguments))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, printing.cancel)
        await asyncio.wait({printing})
        if not printing.cancelled():
            printing.result()
    return 0


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
