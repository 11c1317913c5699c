"""The choice of a queue for a message.

Queues are chosen in turn, without the broker groups that just failed; or by a key, so that messages with the same key
stay in order.  The choice by key is RocketMQ's SelectMessageQueueByHash: a Java producer with the same key chooses the
same queue, as long as both know the same number of queues.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gantry.leaves import hashes
from gantry.model.route import MessageQueue


class Turn:
    """Chooses queues in turn; `start` differs between producers, so that they do not all use the same queue."""

    def __init__(self, start: int = 0) -> None:
        self._next = start

    def select(self, queues: Sequence[MessageQueue], avoid: Collection[str] = ()) -> MessageQueue:
        """Return the next queue whose broker group is not in `avoid`; when all are, the next one."""
        assert queues, "a route without queues has to be refused before"
        for step in range(len(queues)):
            queue = queues[(self._next + step) % len(queues)]
            if queue.broker_name not in avoid:
                self._next += step + 1
                return queue
        queue = queues[self._next % len(queues)]
        self._next += 1
        return queue


def by_key(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """Return the queue for `key`; `queues` has to be the whole route in order."""
    assert queues, "a route without queues has to be refused before"
    return queues[abs(hashes.java_hash(key)) % len(queues)]
