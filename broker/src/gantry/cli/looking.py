"""The common part of `gantry tail` and `gantry peek`: the group they pull with, and printing.

They pull with RocketMQ's group for tools, which every broker has, and never commit.  So no group's offset moves, and no
group is created.
"""

from __future__ import annotations

import json

from gantry.cli.instants import shown
from gantry.model.message import StoredMessage

TOOLS_GROUP = "TOOLS_CONSUMER"


def print_message(message: StoredMessage, output: str) -> None:
    """Print a message as one line of text or one JSON object."""
    body = message.body.decode("utf-8", "backslashreplace")
    if output == "json":
        line = json.dumps({**_about(message), "body": body}, ensure_ascii=False)
    else:
        place = f"{message.broker_name}/{message.queue_id}@{message.queue_offset}"
        tags = f" [{message.tags}]" if message.tags else ""
        line = f"{shown(message.store_ms)} {place} {message.message_id}{tags} {body}"
    print(line, flush=True)


def _about(message: StoredMessage) -> dict[str, object]:
    return {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "message_id": message.message_id,
        "offset_message_id": message.offset_message_id,
        "tags": message.tags,
        "keys": list(message.keys),
        "born_ms": message.born_ms,
        "store_ms": message.store_ms,
        "reconsume_times": message.reconsume_times,
        "properties": dict(message.properties),
    }
