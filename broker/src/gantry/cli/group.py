"""`gantry group list|create|delete|progress|reset`: consumer groups and how far they have come.

`reset` moves a group whose members are stopped; members that run go on from where they are and would write over it.
"""

from __future__ import annotations

import argparse

from gantry.cli.clientflags import add_client_flags, refuse, run_client
from gantry.cli.output import Row, add_output, show
from gantry.client.admin import Admin, QueueProgress
from gantry.errors import ConfigError
from gantry.model.names import group_fault, is_retry_topic, is_system_group, topic_fault


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands."""
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    listing = commands.add_parser("list", help="groups, their members and what is left for them to do")
    listing.add_argument("--all", action="store_true", help="RocketMQ's own, too")
    creating = commands.add_parser("create", help="make a group, or change one")
    deleting = commands.add_parser("delete", help="forget a group with its offsets")
    progress = commands.add_parser("progress", help="queue by queue: how far, and how much is left")
    reset = commands.add_parser("reset", help="let a stopped group continue somewhere else")
    for each in (creating, deleting, progress, reset):
        each.add_argument("group", metavar="GROUP")
    progress.add_argument("--topic", metavar="TOPIC", help="only this one (default: all that it consumes)")
    reset.add_argument("topic", metavar="TOPIC")
    reset.add_argument(
        "--to", metavar="WHERE", required=True, help="first, last, an offset, or @MS: stored at or after"
    )
    reset.add_argument("--queue", metavar="N", type=int, help="only this one (default: all)")
    for each in (creating, deleting):
        each.add_argument("--cluster", metavar="NAME", help="only there")
    for each in commands.choices.values():
        add_client_flags(each)
        add_output(each)


def run(arguments: argparse.Namespace) -> int:
    """Do what the subcommand says."""
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
                await admin.create_group(arguments.group, cluster=arguments.cluster)
            case "delete":
                await admin.delete_group(arguments.group, cluster=arguments.cluster)
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
                # What waits there to be tried again counts as lag; that the group has such a topic is no news.
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
    members = await admin.members(arguments.group)
    if members:
        raise ConfigError(
            f"{arguments.group} has {len(members)} members at work, such as {members[0]}; stop them first"
        )
    rows: list[Row] = []
    for each in await admin.progress(arguments.group, arguments.topic):
        if arguments.queue is None or each.queue.queue_id == arguments.queue:
            target = await _target(admin, arguments.to, each)
            await admin.commit(arguments.group, each.queue, target)
            before = each.committed if each.committed >= 0 else None
            rows.append({"broker": each.queue.broker_name, "queue": each.queue.queue_id, "from": before, "to": target})
    return rows


async def _target(admin: Admin, where: str, progress: QueueProgress) -> int:
    if where == "first":
        return progress.min_offset
    if where == "last":
        return progress.max_offset
    number = where.removeprefix("@")
    if not number.isascii() or not number.isdecimal():
        raise ConfigError(f"--to {where!r}: expected first, last, an offset, or @ and milliseconds since the epoch")
    if where.startswith("@"):
        return await admin.offset_at(progress.queue, int(number))
    return min(max(int(number), progress.min_offset), progress.max_offset)
