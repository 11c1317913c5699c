"""`gantry group list|create|delete|progress|reset`: consumer groups and their progress.

`create` and `delete` print what they did: `group/g created`, changed, unchanged or deleted; the exit code is 1 when
there was nothing to delete.  `reset` moves the offsets of a group, also while members consume: messages that they have
not finished are dropped there.  With --dry-run it only prints the new offsets.
"""

from __future__ import annotations

import argparse

from gantry.cli.clientflags import add_client_flags, refuse, run_client
from gantry.cli.instants import milliseconds
from gantry.cli.numbers import Whole
from gantry.cli.output import Row, add_output, say_done, show
from gantry.client.admin import Admin, QueueProgress, Target
from gantry.client.requests.lag_requests import EARLIEST_MS, LATEST_MS
from gantry.errors import ConfigError, GantryError
from gantry.model.names import group_fault, is_retry_topic, is_system_group, topic_fault
from gantry.model.route import MessageQueue


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    listing = commands.add_parser("list", help="groups, their members and what is left for them to do")
    listing.add_argument("--all", action="store_true", help="RocketMQ's own, too")
    creating = commands.add_parser("create", help="make a group, or change one")
    deleting = commands.add_parser("delete", help="forget a group with its offsets")
    progress = commands.add_parser("progress", help="queue by queue: how far, and how much is left")
    reset = commands.add_parser("reset", help="let a group continue somewhere else")
    for each in (creating, deleting, progress, reset):
        each.add_argument("group", metavar="GROUP")
    progress.add_argument("--topic", metavar="TOPIC", help="only this one (default: all that it consumes)")
    reset.add_argument("topic", metavar="TOPIC")
    where = reset.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", metavar="WHERE", help="first, last, an offset, or @MS: stored at or after")
    where.add_argument("--to-time", metavar="WHEN", help="stored from then on: 2026-11-21T10:00:00Z, @MS, 30m (ago)")
    where.add_argument("--to-offset", metavar="N", type=Whole(0), help="this queue offset, or the nearest there is")
    reset.add_argument("--dry-run", action="store_true", help="show it, and change nothing")
    reset.add_argument("--queue", metavar="N", type=Whole(0), help="only this one (default: all)")
    for each in (creating, deleting):
        each.add_argument("--cluster", metavar="NAME", help="only there")
    for each in commands.choices.values():
        add_client_flags(each)
        add_output(each)


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand. Return the exit code."""
    if "group" in arguments:
        refuse(group_fault(arguments.group))
    if getattr(arguments, "topic", None) is not None:
        refuse(topic_fault(arguments.topic))
    return run_client(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    async with Admin(nameserver=arguments.namesrv, timeout_s=arguments.timeout) as admin:
        match arguments.command:
            case "list":
                show(await _groups(admin, arguments.all), arguments.output, empty="no groups")
            case "create":
                change = await admin.create_group(arguments.group, cluster=arguments.cluster)
                say_done("group", arguments.group, change.value, arguments.output)
            case "delete":
                if not await admin.delete_group(arguments.group, cluster=arguments.cluster):
                    raise GantryError(f"group/{arguments.group} is not there; gantry group list shows what is")
                say_done("group", arguments.group, "deleted", arguments.output)
            case "progress":
                topics = [arguments.topic] if arguments.topic else await admin.consumed_topics(arguments.group)
                rows = [
                    _queue(topic, each) for topic in topics for each in await admin.progress(arguments.group, topic)
                ]
                show(rows, arguments.output, empty="the group has not consumed anything yet")
            case "reset":
                show(await _reset(admin, arguments), arguments.output, empty="no queues")
    return 0


async def _groups(admin: Admin, with_all: bool) -> list[Row]:
    rows: list[Row] = []
    for name, config in sorted((await admin.groups()).items()):
        if is_system_group(name) and not with_all:
            continue
        topics = await admin.consumed_topics(name)
        lag = sum([each.lag for topic in topics for each in await admin.progress(name, topic)])
        rows.append(
            {
                "group": name,
                "members": len(await admin.members(name)),
                # Messages that wait for redelivery count as lag; the retry topic itself is not listed.
                "topics": " ".join(topic for topic in topics if not is_retry_topic(topic)),
                "lag": lag,
                "enabled": config.consume_enable,
            }
        )
    return rows


def _queue(topic: str, progress: QueueProgress) -> Row:
    return {
        "topic": topic,
        "broker": progress.queue.broker_name,
        "queue": progress.queue.queue_id,
        "min_offset": progress.min_offset,
        "max_offset": progress.max_offset,
        "committed": progress.committed if progress.committed >= 0 else None,
        "lag": progress.lag,
    }


async def _reset(admin: Admin, arguments: argparse.Namespace) -> list[Row]:
    where = _where(arguments)
    chosen = [
        each
        for each in await admin.progress(arguments.group, arguments.topic)
        if arguments.queue is None or each.queue.queue_id == arguments.queue
    ]
    if not chosen and arguments.queue is not None:
        raise GantryError(f"--queue {arguments.queue}: {arguments.topic} has no such queue; nothing was changed")
    targets = {each.queue: await _target(admin, where, each) for each in chosen}
    if not arguments.dry_run:
        targets = await _move(admin, arguments, where, targets)
    return [
        {
            "broker": each.queue.broker_name,
            "queue": each.queue.queue_id,
            "from": each.committed if each.committed >= 0 else None,
            "to": targets[each.queue],
            "left": each.max_offset - targets[each.queue],
        }
        for each in chosen
        if each.queue in targets
    ]


def _where(arguments: argparse.Namespace) -> Target:
    """Return the target of --to, --to-time or --to-offset; ConfigError when it is invalid."""
    if arguments.to_time is not None:
        return Target(milliseconds(arguments.to_time, "--to-time"))
    if arguments.to_offset is not None:
        return Target(offset=arguments.to_offset)
    ends = {"first": EARLIEST_MS, "earliest": EARLIEST_MS, "last": LATEST_MS, "latest": LATEST_MS}
    if arguments.to in ends:
        return Target(ends[arguments.to])
    number = arguments.to.removeprefix("@")
    if not number.isascii() or not number.isdecimal():
        raise ConfigError(
            f"--to {arguments.to!r}: expected first, last, an offset, or @ and milliseconds since the epoch"
        )
    return Target(int(number)) if arguments.to.startswith("@") else Target(offset=int(number))


async def _target(admin: Admin, where: Target, progress: QueueProgress) -> int:
    """Return the offset at which the queue will continue, as far as it is known now."""
    if where.offset >= 0:
        return min(max(where.offset, progress.min_offset), progress.max_offset)
    if where.at_ms == LATEST_MS:
        return progress.max_offset
    return await admin.offset_at(progress.queue, where.at_ms)


async def _move(
    admin: Admin, arguments: argparse.Namespace, where: Target, targets: dict[MessageQueue, int]
) -> dict[MessageQueue, int]:
    """Reset by one request to each broker for a time, else queue by queue. Return the new offsets."""
    if where.offset < 0 and arguments.queue is None:
        return await admin.reset(arguments.group, arguments.topic, where)
    moved: dict[MessageQueue, int] = {}
    for queue, offset in targets.items():
        target = Target(queue_id=queue.queue_id, offset=offset)
        moved |= await admin.reset(arguments.group, arguments.topic, target, broker=queue.broker_name)
    return moved
