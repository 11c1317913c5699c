"""`gantry peek TOPIC`: print stored messages from an offset or a time on, and change nothing.

Without --offset and --time it shows the newest ones.  --count is for each queue; messages come queue by queue, in their
order.
"""

from __future__ import annotations

import argparse

from gantry.cli.clientflags import add_client_flags, refuse, run_client
from gantry.cli.instants import milliseconds
from gantry.cli.looking import TOOLS_GROUP, print_message
from gantry.cli.numbers import Whole
from gantry.cli.output import add_output
from gantry.client.puller import Puller, PullStatus
from gantry.errors import GantryError
from gantry.model.names import topic_fault
from gantry.model.route import MessageQueue

_PULL_MAX = 32  # of one request


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--queue", metavar="[BROKER/]N", help="only this one (default: all)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--offset", metavar="N", type=Whole(0), help="from this queue offset on")
    where.add_argument("--time", metavar="WHEN", help="stored from then on: 2026-11-21T10:00:00Z, @MS, 30m (ago)")
    parser.add_argument("--count", metavar="N", type=Whole(1), default=10, help="of each queue (default: %(default)s)")
    add_client_flags(parser)
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Pull and print messages. Return the exit code."""
    refuse(topic_fault(arguments.topic))
    at_ms = None if arguments.time is None else milliseconds(arguments.time, "--time")
    return run_client(_run(arguments, at_ms))


async def _run(arguments: argparse.Namespace, at_ms: int | None) -> int:
    async with Puller(TOOLS_GROUP, nameserver=arguments.namesrv, timeout_s=arguments.timeout) as puller:
        queues = [queue for queue in await puller.queues(arguments.topic) if _is_wanted(queue, arguments.queue)]
        if not queues:
            raise GantryError(f"--queue {arguments.queue}: {arguments.topic} has no such queue")
        for queue in queues:
            low, high = await puller.min_offset(queue), await puller.max_offset(queue)
            if at_ms is not None:
                begin = await puller.offset_at(queue, at_ms)
            else:
                begin = high - arguments.count if arguments.offset is None else arguments.offset
            await _show(puller, queue, max(low, begin), min(high, max(low, begin) + arguments.count), arguments.output)
    return 0


async def _show(puller: Puller, queue: MessageQueue, begin: int, end: int, output: str) -> None:
    while begin < end:
        result = await puller.pull(queue, begin, count_max=min(_PULL_MAX, end - begin))
        for message in result.messages:
            print_message(message, output)
        if result.status is PullStatus.NO_NEW_MESSAGE or result.next_offset <= begin:
            return
        begin = result.next_offset


def _is_wanted(queue: MessageQueue, given: str | None) -> bool:
    if given is None:
        return True
    broker, _, number = given.rpartition("/")
    return number == str(queue.queue_id) and broker in ("", queue.broker_name)
