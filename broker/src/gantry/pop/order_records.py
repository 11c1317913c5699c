"""The state of orderly pops in the log: one small record for each change, of which the newest of a queue counts.

    topic        rmq_sys_POP_ORDER, queue 0; only brokers write it, and nobody consumes it
    POP_ORDER    the state as JSON, a property of the record: t topic, c group, q queue id, and
                     b    the batch, as `order` writes it
                     dead the offset of the message that went to the dead-letter topic with this change
                     from the log offset of that message

The state is in a property so that dispatching has it without reading the record.  A record replaces everything that
earlier ones say about its queue, so any number of them may be read twice.  They have a topic of their own, not the
revive topic's, so that a start reads these records only, in one queue, and the reviver none of them.

Everything read here may be damaged: what is no state gives None.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from gantry.leaves import delays, frames
from gantry.model import names
from gantry.pop import order
from gantry.pop.book import Queue
from gantry.pop.order import OrderedBatch

STATE = b"POP_ORDER"
QUEUE_ID = 0


class Dead(NamedTuple):
    """A message that goes to the dead-letter topic: its queue offset and its log offset."""

    offset: int
    log_offset: int


class OrderState(NamedTuple):
    """What a record says of its queue."""

    queue: Queue
    batch: OrderedBatch
    dead: Dead | None = None


def message(state: OrderState, host: bytes, now_ms: int) -> frames.Send:
    """Return the record of a change."""
    group, topic, queue_id = state.queue
    value: dict[str, object] = {"b": state.batch.to_json(), "c": group, "q": queue_id, "t": topic}
    if state.dead is not None:
        value["dead"], value["from"] = state.dead
    text = json.dumps(value, separators=(",", ":")).encode()
    return frames.Send(
        topic=names.POP_ORDER_TOPIC,
        queue_id=QUEUE_ID,
        born_ms=now_ms,
        born_host=host,
        properties=b"%b\x01%b\x02" % (STATE, text),
        body=b"pop order",
    )


def read(properties: bytes) -> OrderState | None:
    """Return what a record says; None when it is damaged."""
    try:
        value = json.loads(delays.last(properties, STATE) or b"")
        group, topic, queue_id, dead = value["c"], value["t"], value["q"], value.get("dead")
        if not (isinstance(group, str) and isinstance(topic, str) and isinstance(queue_id, int)):
            return None
        batch = order.from_json(value["b"], "b")
        if batch is None:
            return None
        gone = None if dead is None else Dead(int(dead), int(value["from"]))
        return OrderState((group, topic, queue_id), batch, gone)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
