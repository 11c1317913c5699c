"""`gantry dlq ls|show|replay`: dead letters, that is messages whose delivery to a consumer group failed too often.

`ls` counts them; `show` lists those of a group, oldest first, or one whole message with --id.  `replay` sends them to
their group again, each with its own message id, and prints what it did; --dry-run only prints what it would do.  It
continues where the last replay ended, at no more than --rate messages each second, so it may be interrupted at any
time. With --id or --again that position is not used and does not move.  Dead letters stay until their segment expires.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator

from gantry.cli.clientflags import add_client_flags, refuse, run_client
from gantry.cli.numbers import Number, Whole
from gantry.cli.output import Row, add_output, show, show_json, show_one
from gantry.client.deadletters import DeadLetter, DeadLetters, DeadQueue, only, paced, target_topic
from gantry.errors import GantryError, RefusedError
from gantry.model.names import group_fault
from gantry.wire.codes import ResponseCode

_RATE_MAX = 10_000.0
_ROWS_MAX = 1000  # so many replayed messages are listed at most; the count is of all


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    listing = commands.add_parser("ls", help="which groups have dead letters, and how many")
    listing.add_argument("--group", metavar="NAME", help="only this one")
    showing = commands.add_parser("show", help="a group's dead letters, oldest first")
    showing.add_argument("--id", metavar="ID", help="this one whole, with its properties and its body")
    replaying = commands.add_parser("replay", help="hand them to their group again")
    replaying.add_argument("--id", metavar="ID", action="append", default=[], help="only this one; may be repeated")
    replaying.add_argument("--again", action="store_true", help="from the oldest on, those replayed before as well")
    replaying.add_argument("--dry-run", action="store_true", help="say which, and send nothing")
    replaying.add_argument(
        "--to",
        choices=("group", "topic"),
        default="group",
        help="only to the group, or to their topic: to every group that subscribes to it (default: %(default)s)",
    )
    replaying.add_argument(
        "--rate",
        metavar="N",
        type=Number(0.0, _RATE_MAX, is_above=True),
        default=100.0,
        help="so many each second at most (default: %(default)g)",
    )
    for each in (showing, replaying):
        each.add_argument("group", metavar="GROUP")
    showing.add_argument("--count", metavar="N", type=Whole(1), default=100, help="so many (default: %(default)s)")
    replaying.add_argument("--count", metavar="N", type=Whole(0), default=0, help="so many at most (default: 0, all)")
    for each in commands.choices.values():
        add_client_flags(each)
        add_output(each)


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand. Return the exit code."""
    if arguments.group is not None:
        refuse(group_fault(arguments.group))
    return run_client(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    async with DeadLetters(nameserver=arguments.namesrv, timeout_s=arguments.timeout) as dead:
        if arguments.command == "ls":
            groups = [arguments.group] if arguments.group else await dead.groups()
            queues = [queue for group in groups for queue in await _queues(dead, group)]
            show([_queue_row(queue) for queue in queues], arguments.output, empty="no group has dead letters")
            return 0
        queues = await _queues(dead, arguments.group)
        if arguments.command == "show":
            return await _show(dead, queues, arguments)
        return await _Replay(dead, arguments).run(queues)


async def _queues(dead: DeadLetters, group: str) -> list[DeadQueue]:
    try:
        return await dead.queues(group)
    except RefusedError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return []


async def _show(dead: DeadLetters, queues: list[DeadQueue], arguments: argparse.Namespace) -> int:
    wanted = [] if arguments.id is None else [arguments.id]
    found: list[DeadLetter] = []
    for queue in queues:
        async for letter in only(dead.letters(queue, queue.start), wanted):
            if not wanted and len(found) >= arguments.count:
                break
            found.append(letter)
    if arguments.id is None:
        show([_row(letter) for letter in found], arguments.output, empty=f"{arguments.group} has no dead letters")
        return 0
    if not found:
        print(f"gantry: {arguments.group} has no dead letter {arguments.id}", file=sys.stderr)
        return 1
    # The newest one: the same message may have become a dead letter more than once.
    newest = max(found, key=lambda letter: letter.record.store_ms)
    if arguments.output == "json":
        show_json({**_whole(newest), "properties": dict(newest.properties)})
    else:
        show_one(_whole(newest), arguments.output)
    return 0


class _Replay:
    """The state of one execution of `replay`: counts, rows to print, ids not found yet."""

    def __init__(self, dead: DeadLetters, arguments: argparse.Namespace) -> None:
        self._dead = dead
        self._arguments = arguments
        self._rows: list[Row] = []
        self._done = 0
        self._left = 0
        self._missing = set(arguments.id)
        self._moves = not (arguments.dry_run or arguments.again or arguments.id)

    async def run(self, queues: list[DeadQueue]) -> int:
        """Replay, and print what was done, also when it ends early. Return the exit code."""
        has_failed = False
        try:
            await self._all(queues)
        except (GantryError, asyncio.CancelledError) as error:
            has_failed = True
            print(f"gantry: broken off: {str(error) or 'interrupted'}; call it again to go on", file=sys.stderr)
        show(self._rows, self._arguments.output, empty="nothing to replay")
        what = "would be replayed" if self._arguments.dry_run else "replayed"
        left = f", {self._left} do not say from where and stay" if self._left else ""
        shown = f"; the first {_ROWS_MAX} are shown" if self._done + self._left > _ROWS_MAX else ""
        print(f"{self._done} {what}{left}{shown}", file=sys.stderr)
        if not has_failed:
            for message_id in sorted(self._missing):
                has_failed = True
                print(f"gantry: {self._arguments.group} has no dead letter {message_id}", file=sys.stderr)
        return 1 if has_failed else 0

    async def _all(self, queues: list[DeadQueue]) -> None:
        arguments = self._arguments
        async for letter in self._chosen(queues):
            topic = target_topic(letter, arguments.group, arguments.to == "topic")
            if topic and not arguments.dry_run:
                await self._dead.replay(letter, topic)
            self._done += bool(topic)
            self._left += not topic
            self._missing.discard(letter.message_id)
            if len(self._rows) < _ROWS_MAX:
                self._rows.append({**_row(letter), "target": topic or None})
            if self._moves:
                await self._dead.passed(letter)

    async def _chosen(self, queues: list[DeadQueue]) -> AsyncIterator[DeadLetter]:
        arguments = self._arguments
        count = 0
        for queue in queues:
            start = queue.start if arguments.again or arguments.id else queue.replayed_to
            letters = only(self._dead.letters(queue, start), arguments.id)
            async for letter in letters if arguments.dry_run else paced(letters, arguments.rate):
                yield letter
                count += 1
                if count == arguments.count:
                    return


def _queue_row(found: DeadQueue) -> Row:
    return {
        "group": found.group,
        "broker": found.queue.broker_name,
        "queue": found.queue.queue_id,
        "messages": found.end - found.start,
        "notReplayed": found.end - found.replayed_to,
        "oldestMs": None if found.oldest_ms < 0 else found.oldest_ms,
        "newestMs": None if found.newest_ms < 0 else found.newest_ms,
    }


def _row(letter: DeadLetter) -> Row:
    return {
        "id": letter.message_id,
        "topic": letter.origin_topic,
        "tags": letter.properties.get("TAGS", ""),
        "keys": letter.properties.get("KEYS", ""),
        "redelivered": max(0, letter.record.reconsume_times - 1),
        "replays": letter.replays,
        "bornMs": letter.record.born_ms,
        "diedMs": letter.record.store_ms,
        "broker": letter.queue.broker_name,
        "queue": letter.queue.queue_id,
        "offset": letter.record.queue_offset,
    }


def _whole(letter: DeadLetter) -> Row:
    pairs = " ".join(f"{name}={text}" for name, text in sorted(letter.properties.items()))
    return {**_row(letter), "properties": pairs, "body": letter.body().decode("utf-8", "backslashreplace")}
