"""`gantry topic list|create|delete|status|find`: topics and their messages.

`create` and `delete` print what they did: `topic/tea created`, changed, unchanged or deleted; the exit code is 1 when
there was nothing to delete.  `status` shows each queue's offsets; `find` finds messages by key or by one of their ids.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from gantry.cli.clientflags import add_client_flags, refuse, run_client
from gantry.cli.numbers import Whole
from gantry.cli.output import Row, add_output, say_done, show
from gantry.client.admin import Admin
from gantry.errors import ConfigError, GantryError
from gantry.model.message import StoredMessage
from gantry.model.names import TEMPLATE_TOPIC, is_retry_topic, is_system_topic, reply_topic, topic_fault
from gantry.model.topic import PERM_READ, PERM_READ_WRITE, PERM_WRITE

_PERMISSIONS = {"rw": PERM_READ_WRITE, "r": PERM_READ, "w": PERM_WRITE}
_QUEUES_MAX = 65_536  # what a broker allows
_OWN_GROUP = "gantry-cli"
_OFFSET_ID_LENGTHS = (32, 56)


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    listing = commands.add_parser("list", help="topics and where their queues are")
    listing.add_argument("--all", action="store_true", help="RocketMQ's own and the retry topics of groups, too")
    creating = commands.add_parser("create", help="make a topic, or change one")
    creating.add_argument("topic", metavar="TOPIC")
    creating.add_argument(
        "--queues",
        metavar="N",
        type=Whole(1, _QUEUES_MAX),
        default=8,
        help="on each broker group (default: %(default)s)",
    )
    creating.add_argument("--perm", choices=sorted(_PERMISSIONS), default="rw", help="(default: %(default)s)")
    creating.add_argument("--cluster", metavar="NAME", help="only there")
    creating.add_argument(
        "--attribute",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="such as message.size.max=65536 or property.count.max=16; may come several times",
    )
    deleting = commands.add_parser("delete", help="forget a topic with its messages")
    deleting.add_argument("topic", metavar="TOPIC")
    deleting.add_argument("--cluster", metavar="NAME", help="only there")
    status = commands.add_parser("status", help="the offsets of each queue")
    status.add_argument("topic", metavar="TOPIC")
    finding = commands.add_parser("find", help="messages by key or id")
    finding.add_argument("topic", metavar="TOPIC")
    what = finding.add_mutually_exclusive_group(required=True)
    what.add_argument("--key", help="one of the keys that it was sent with")
    what.add_argument("--id", help="its message id, or the offset message id that the broker gave")
    for each in commands.choices.values():
        add_client_flags(each)
        add_output(each)


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand. Return the exit code."""
    if "topic" in arguments:
        refuse(topic_fault(arguments.topic))
    return run_client(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    async with Admin(nameserver=arguments.namesrv, timeout_s=arguments.timeout) as admin:
        match arguments.command:
            case "list":
                show(await _topics(admin, arguments.all), arguments.output, empty="no topics")
            case "create":
                change = await admin.create_topic(
                    arguments.topic,
                    queues=arguments.queues,
                    perm=_PERMISSIONS[arguments.perm],
                    cluster=arguments.cluster,
                    attributes=_attributes(arguments.attribute),
                )
                say_done("topic", arguments.topic, change.value, arguments.output)
            case "delete":
                if not await admin.delete_topic(arguments.topic, cluster=arguments.cluster):
                    raise GantryError(f"topic/{arguments.topic} is not there; gantry topic list shows what is")
                say_done("topic", arguments.topic, "deleted", arguments.output)
            case "status":
                show(await _queues(admin, arguments.topic), arguments.output, empty="no queues")
            case "find":
                found = await _find(admin, arguments)
                show([_message(one) for one in found], arguments.output, empty="no such message")
                return 0 if found else 1
    return 0


def _attributes(given: list[str]) -> dict[str, str]:
    attributes = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not key or not equals:
            raise ConfigError(f"--attribute {one!r}: expected KEY=VALUE")
        attributes[key] = value
    return attributes


async def _topics(admin: Admin, with_all: bool) -> list[Row]:
    names = await admin.topics()
    if not with_all:
        cluster = await admin.cluster()
        # A cluster and a broker group each have a topic of their name, whose messages reach exactly them.
        own = {*cluster.clusters, *cluster.groups, *map(reply_topic, cluster.clusters)}
        names = [name for name in names if not (is_system_topic(name) or is_retry_topic(name) or name in own)]
    # The template holds no messages: automatically created topics copy its settings.
    names = [name for name in names if name != TEMPLATE_TOPIC]
    return [
        {
            "topic": name,
            "broker": queues.broker_name,
            "read_queues": queues.read_queues,
            "write_queues": queues.write_queues,
            "readable": queues.perm & PERM_READ != 0,
            "writable": queues.perm & PERM_WRITE != 0,
        }
        for name in names
        for queues in (await admin.route(name)).queues
    ]


async def _queues(admin: Admin, topic: str) -> list[Row]:
    return [
        {
            "broker": each.queue.broker_name,
            "queue": each.queue.queue_id,
            "min_offset": each.min_offset,
            "max_offset": each.max_offset,
            "messages": each.max_offset - each.min_offset,
        }
        for each in await admin.progress(_OWN_GROUP, topic)
    ]


async def _find(admin: Admin, arguments: argparse.Namespace) -> Iterable[StoredMessage]:
    if arguments.key is not None:
        return await admin.messages_by_key(arguments.topic, arguments.key)
    found = await admin.messages_by_id(arguments.topic, arguments.id)
    if not found and len(arguments.id) in _OFFSET_ID_LENGTHS:
        try:
            one = await admin.message_by_offset_id(arguments.id)
        except ValueError as error:
            raise ConfigError(f"--id: {error}") from error
        return [one] if one is not None else []
    return found


def _message(message: StoredMessage) -> Row:
    return {
        "message_id": message.message_id,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "store_ms": message.store_ms,
        "tags": message.tags,
        "keys": " ".join(message.keys),
        "offset_message_id": message.offset_message_id,
        "body": message.body.decode("utf-8", "backslashreplace"),
    }
