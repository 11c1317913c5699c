"""Into which queue a message goes.

Two ways: in turn, leaving out the broker groups that just failed; or by a key, so that what belongs
together stays in order.  By key is RocketMQ's SelectMessageQueueByHash, so a Java producer with the same
key meets the same queue, as long as both see the same number of queues.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gantry.leaves import hashes
from gantry.model.route import MessageQueue


class Turn:
    """Goes round the queues; `start` is where, so that many producers do not march in step."""

    def __init__(self, start: int = 0) -> None:
        self._next = start

    def select(self, queues: Sequence[MessageQueue], avoid: Collection[str] = ()) -> MessageQueue:
        """The next queue whose broker group is not in `avoid`; when all are, the next one."""
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
    """The queue that belongs to `key`; `queues` has to be the whole route in its order."""
    assert queues, "a route without queues has to be refused before"
    return queues[abs(hashes.java_hash(key)) % len(queues)]
