"""Offsets of a stream in its checkpoint: version 1 of a format that every later release has to read.

    start  {"init":{"mode":"earliest"},"v":1}
    end    {"cluster":{"broker-a":"6f1d..."},"from":{"orders":{"broker-a":{"0":0}}},
            "q":{"orders":{"broker-a":{"0":123}}},"topics":{"orders":{"broker-a":0}},"v":1}

A position is the next offset to read, so an end is exclusive.  `from` says where a queue begins that the start offset
does not know: all of them in the first batch, queues that appear later in theirs.  The first start is a sentinel that
never changes, and the first end resolves it: a batch 0 that is killed is repeated from what was logged, not from the
broker's later answer.  Keys are broker names, which stay the same after a failover; only keys of a topic's former
generation are dropped.

`cluster` and `topics` say whose offsets these are: the cluster of each broker group, and the topic's generation there.
Brokers of RocketMQ return neither, and checkpoints of the first releases have neither: what is unknown is not compared.
A queue of a topic that was made again begins again, so its `from` overrides its old position.

Spark compares offsets as strings, so equal offsets have to be equal texts: keys are sorted, and a batch without
messages returns its start offset unchanged.

Pure: no Spark, no broker, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

VERSION = 1
Offset = dict[str, Any]


class Queue(NamedTuple):
    """One queue of one group of brokers."""

    topic: str
    broker: str
    number: int

    def __str__(self) -> str:
        """Return TOPIC/BROKER/NUMBER, for error texts and logs."""
        return f"{self.topic}/{self.broker}/{self.number}"


class Stretch(NamedTuple):
    """Messages of one queue: `start` to `end`, exclusive."""

    queue: Queue
    start: int
    end: int


class BrokerTopic(NamedTuple):
    """A topic on one group of brokers."""

    topic: str
    broker: str


class Identity(NamedTuple):
    """Clusters and generations to which offsets belong, as far as known."""

    clusters: Mapping[str, str] = {}  # by broker name
    lives: Mapping[BrokerTopic, int] = {}

    def at(self, place: BrokerTopic) -> Identity:
        """Return the part about one place."""
        clusters = {name: uid for name, uid in self.clusters.items() if name == place.broker}
        return Identity(clusters, {place: self.lives[place]} if place in self.lives else {})


NOBODY = Identity()


def sentinel(mode: str) -> Offset:
    """The start of a stream that has not read anything."""
    return {"init": {"mode": mode}, "v": VERSION}


def is_sentinel(offset: Offset) -> bool:
    """Return whether the offset is the sentinel of a stream that has not begun."""
    return "init" in checked(offset)


def checked(offset: Offset) -> Offset:
    """Return the offset; ValueError when a newer release has written it."""
    if offset.get("v") != VERSION:
        raise ValueError(f"the checkpoint has offsets of version {offset.get('v')}, this release reads {VERSION}")
    return offset


def positions(offset: Offset) -> dict[Queue, int]:
    """Return the position of each queue; none for a sentinel."""
    return flat(checked(offset).get("q", {}))


def begun(offset: Offset) -> dict[Queue, int]:
    """Return where queues begin that the start offset of the batch does not have."""
    return flat(offset.get("from", {}))


def identity(offset: Offset) -> Identity:
    """Return the clusters and generations that an offset names."""
    lives = {
        BrokerTopic(topic, broker): at for topic, of in offset.get("topics", {}).items() for broker, at in of.items()
    }
    return Identity(dict(offset.get("cluster", {})), lives)


def end(
    known: Mapping[Queue, int], new: Mapping[Queue, int], reached: Mapping[Queue, int], whose: Identity = NOBODY
) -> Offset:
    """Make the end of a batch from the `known` queues, the `new` ones with their beginnings, and what is `reached`."""
    found: Offset = {"q": _nested({**known, **new, **reached}), "v": VERSION}
    if new:
        found["from"] = _nested(new)
    if whose.clusters:
        found["cluster"] = dict(sorted(whose.clusters.items()))
    for place in sorted(whose.lives):
        found.setdefault("topics", {}).setdefault(place.topic, {})[place.broker] = whose.lives[place]
    return dict(sorted(found.items()))


def stretches(start: Offset, end: Offset) -> list[Stretch]:
    """Return the messages between two offsets, queue by queue, without empty stretches."""
    at = {**positions(start), **begun(end)}
    found = [Stretch(queue, at[queue], to) for queue, to in sorted(positions(end).items())]
    return [one for one in found if one.start < one.end]


def flat(nested: Mapping[str, Mapping[str, Mapping[str, int]]]) -> dict[Queue, int]:
    """Return nested numbers with topic, broker and queue as one key."""
    return {
        Queue(topic, broker, int(number)): at
        for topic, brokers in nested.items()
        for broker, queues in brokers.items()
        for number, at in queues.items()
    }


def _nested(flat: Mapping[Queue, int]) -> dict[str, dict[str, dict[str, int]]]:
    found: dict[str, dict[str, dict[str, int]]] = {}
    for queue in _in_order(flat):
        found.setdefault(queue.topic, {}).setdefault(queue.broker, {})[str(queue.number)] = flat[queue]
    return found


def _in_order(queues: Iterable[Queue]) -> list[Queue]:
    return sorted(queues, key=lambda queue: (queue.topic, queue.broker, str(queue.number)))
