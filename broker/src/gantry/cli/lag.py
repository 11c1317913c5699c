"""`gantry lag`: the progress of every group, queue by queue.

`lag` counts stored messages that the group has not finished.  `committed` is empty when the group never committed
anything; then all messages count.  `last` is when the last finished message was stored.  With --sum there is one line
for each group and topic.  The command changes nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from gantry.cli.clientflags import add_client_flags, refuse, run_client
from gantry.cli.instants import shown
from gantry.cli.output import Row, add_output, show
from gantry.client.admin import Admin, QueueLag
from gantry.model.names import group_fault, is_system_group, topic_fault


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--group", metavar="GROUP", default="", help="only this one")
    parser.add_argument("--topic", metavar="TOPIC", default="", help="only this one")
    parser.add_argument("--behind", action="store_true", help="only where something is left")
    parser.add_argument("--sum", action="store_true", help="one line for each group and topic")
    parser.add_argument("--all", action="store_true", help="RocketMQ's own groups, too")
    add_client_flags(parser)
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Ask the brokers and print. Return the exit code."""
    if arguments.group:
        refuse(group_fault(arguments.group))
    if arguments.topic:
        refuse(topic_fault(arguments.topic))
    return run_client(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    async with Admin(nameserver=arguments.namesrv, timeout_s=arguments.timeout) as admin:
        found = await admin.lag(group=arguments.group, topic=arguments.topic)
    wanted = [one for one in found if arguments.all or arguments.group or not is_system_group(one.group)]
    wanted.sort(key=lambda one: (one.group, one.queue))
    rows = _summed(wanted) if arguments.sum else [_row(one) for one in wanted]
    if arguments.behind:
        rows = [row for row in rows if row["lag"]]
    empty = "no group is behind" if arguments.behind and wanted else "no group consumes anything"
    show(rows, arguments.output, empty=empty)
    return 0


def _row(one: QueueLag) -> Row:
    return {
        "group": one.group,
        "topic": one.queue.topic,
        "broker": one.queue.broker_name,
        "queue": one.queue.queue_id,
        "committed": one.committed if one.committed >= 0 else None,
        "max_offset": one.max_offset,
        "lag": one.lag,
        "last": shown(one.last_ms),
    }


def _summed(found: Iterable[QueueLag]) -> list[Row]:
    parts: dict[tuple[str, str], list[QueueLag]] = {}
    for one in found:
        parts.setdefault((one.group, one.queue.topic), []).append(one)
    return [
        {
            "group": group,
            "topic": topic,
            "queues": len(part),
            "lag": sum(one.lag for one in part),
            "last": shown(max(one.last_ms for one in part)),
        }
        for (group, topic), part in parts.items()
    ]
