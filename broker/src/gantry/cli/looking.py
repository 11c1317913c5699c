"""What `gantry tail` and `gantry peek` have in common: pulling without being anybody, and printing.

They pull under the name of RocketMQ's own group for tools, which every broker has, and never commit: no group's offset
moves, and none comes into being.
"""

from __future__ import annotations

import json

from gantry.cli.instants import shown
from gantry.model.message import StoredMessage

TOOLS_GROUP = "TOOLS_CONSUMER"


def print_message(message: StoredMessage, output: str) -> None:
    """One line: for a person, or a JSON object."""
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
