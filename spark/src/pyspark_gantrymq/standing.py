"""Comparing a checkpoint with the present answers of brokers: which positions are valid, and what is wrong otherwise.

    another cluster         always an error: its offsets mean nothing there
    a topic made again       an error; with failOnDataLoss=false the new one is read from its beginning
    a queue that ends
    before what was read    an error; not where a slave says so, which may be behind
    retention was faster    an error; with failOnDataLoss=false, or where a slave says so, which may begin later than
                            its master, the tasks find out, and count it
    a queue that the topic
    had and has no more     an error while it has unread messages; with failOnDataLoss=false they are given up
    a queue that appears
    later, and not with 0   an error; with failOnDataLoss=false it is read from its first message
    a group that is not in
    the topic's route, a
    pattern's topic that
    is not there any more   away; with failOnDataLoss=false done with, until it is there again

A stream gets its answers group by group, so a group that is away delays only its own queues.  `Outage` limits for how
long.

Pure: no Spark, no broker, no clock.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark_gantrymq import offsets
from pyspark_gantrymq.offsets import NOBODY, BrokerTopic, Identity, Offset, Queue

NEW_CHECKPOINT = "a new checkpoint begins a new stream"
log = logging.getLogger(__name__)


class Ends(NamedTuple):
    """The offset of a queue's oldest message, and of the next one."""

    first: int
    last: int


@dataclass(frozen=True)
class Seen:
    """The answers of brokers, and which brokers did not answer."""

    ends: Mapping[Queue, Ends] = field(default_factory=dict)
    whose: Identity = NOBODY
    away: Mapping[str, str] = field(default_factory=dict)  # groups and topics without an answer, with the error
    gone: Mapping[str, str] = field(default_factory=dict)  # groups that a topic had, topics that a pattern had
    behind: frozenset[BrokerTopic] = frozenset()  # answered by slaves
    cut: Mapping[Queue, Ends] = field(default_factory=dict)  # queues that a topic had, on groups that it still has


class Outage:
    """For how long each group or topic has been away."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since: dict[str, float] = {}

    def note(self, away: Mapping[str, str], now: float) -> None:
        """Record which are away at this time; RuntimeError when one of them has been for too long."""
        for name in away.keys() - self._since.keys():
            log.warning("%s is away: %s; waiting for up to %g s (option maxOutage)", name, away[name], self._limit_s)
        for name in self._since.keys() - away.keys():
            log.warning("%s is there again", name)
        self._since = {name: self._since.get(name, now) for name in away}
        for name, since in sorted(self._since.items()):
            if now - since >= self._limit_s:
                raise RuntimeError(f"{name} is away for {now - since:.0f} s (option maxOutage): {away[name]}")

    @property
    def is_on(self) -> bool:
        """Return whether a group or topic was away at the last call of `note`."""
        return bool(self._since)


def place_of(queue: Queue) -> BrokerTopic:
    """Return the topic and broker group of a queue."""
    return BrokerTopic(queue.topic, queue.broker)


def topic_name(topic: str) -> str:
    """Return the key of a topic in `away` and `gone`; groups are there under their own names."""
    return f"topic {topic}"


def unread(gone: str, start: Offset, last: Mapping[Queue, int], seen: Seen) -> int:
    """Count unread messages of a group or topic that is gone, as far as the ends of its queues are known."""
    return sum(
        max(0, last.get(queue, at) - at)
        for queue, at in offsets.positions(start).items()
        if queue not in seen.ends and gone in (queue.broker, topic_name(queue.topic))
    )


def known(start: Offset, seen: Seen, is_strict: bool, last: Mapping[Queue, int]) -> dict[Queue, int]:
    """Return the valid positions of `start`; RuntimeError saying what is wrong.  `last`: where queues ended before."""
    _same_cluster(start, seen)
    was, found = offsets.identity(start), offsets.positions(start)
    for place in sorted(was.lives):
        said = made_again(was.at(place), seen.whose)
        if said:
            former = {queue: at for queue, at in found.items() if place_of(queue) == place}
            _lost_life(said, sum(max(0, last.get(one, at) - at) for one, at in former.items()), is_strict)
            found = {queue: at for queue, at in found.items() if queue not in former}
    for queue in sorted(found.keys() & seen.ends.keys()):
        at, ends = found[queue], seen.ends[queue]
        place = place_of(queue)
        if ends.last < at and place not in seen.behind:
            text = f"{queue} ends at {ends.last}, {at} was read"
            if place in was.lives and place in seen.whose.lives:
                lost = f"{at - ends.last} messages that were read are gone from {queue.broker}"
                raise RuntimeError(f"{text}: {lost}, as after a failover to a member without them; {NEW_CHECKPOINT}")
            raise RuntimeError(f"{text}; was the topic made again? {NEW_CHECKPOINT}")
        if ends.first > at and is_strict and place not in seen.behind:
            raise RuntimeError(f"{gone_text(queue, at, ends.first)}; option failOnDataLoss=false passes over them")
    for queue, text in cut_text(found, seen).items():
        if is_strict:
            raise RuntimeError(f"{text}; give {queue.topic} its queues again, or failOnDataLoss=false goes on without")
    return found


def cut_text(at: Mapping[Queue, int], seen: Seen) -> dict[Queue, str]:
    """Return a text for each removed queue that was not read to its end: which messages are given up."""
    return {
        queue: f"{queue} is a queue of its topic no more, and messages {at[queue]} to {ends.last - 1} were not read"
        for queue, ends in sorted(seen.cut.items())
        if queue in at and ends.last > at[queue]
    }


def beginnings(new: Mapping[Queue, Ends], seen: Seen, is_strict: bool) -> dict[Queue, int]:
    """Return where a stream begins in queues that appeared while it ran: at 0, so that no message is skipped.

    RuntimeError: messages are gone before they could be read.  Without `is_strict` they are counted in the log.  A
    slave may begin later than its master, so the tasks find out what is gone.
    """
    found = {}
    for queue, ends in sorted(new.items()):
        is_slaves = place_of(queue) in seen.behind
        found[queue] = 0 if is_strict or is_slaves else ends.first
        if ends.first and not is_slaves and is_strict:
            said = f"{queue} appeared after the stream began, and {gone_text(queue, 0, ends.first)}"
            raise RuntimeError(f"{said}; option failOnDataLoss=false passes over them")
        if found[queue]:
            log.warning("%s appeared after the stream began; %s", queue, gone_text(queue, 0, ends.first))
    return found


def unknown(start: Offset, known: Mapping[Queue, int], seen: Seen) -> dict[Queue, Ends]:
    """Return the queues that appeared; while a group is away, only those whose cluster is known."""
    was = offsets.identity(start).clusters
    now = seen.whose.clusters

    def is_ours(broker: str) -> bool:
        return broker in was or now.get(broker) in was.values()

    is_whole = not was or not (seen.away or seen.gone)
    return {
        queue: ends
        for queue, ends in seen.ends.items()
        if queue not in known and (is_whole or is_ours(queue.broker))
    }


def whose(start: Offset, seen: Seen, known: Mapping[Queue, int]) -> Identity:
    """Return the identity of the next offset: the last known clusters and generations of its queues."""
    was = offsets.identity(start)
    clusters, lives = {**was.clusters, **seen.whose.clusters}, {**was.lives, **seen.whose.lives}
    kept = {place_of(queue) for queue in known}
    brokers = {place.broker for place in kept}
    return Identity(
        {broker: uid for broker, uid in clusters.items() if broker in brokers},
        {place: life for place, life in lives.items() if place in kept},
    )


def other_cluster(was: Identity, now: Identity) -> str:
    """Return a text if brokers are of another cluster than when the batch was planned; else an empty one."""
    for broker, uid in sorted(was.clusters.items()):
        if now.clusters.get(broker, uid) != uid:
            return (
                f"the checkpoint is of cluster {uid} (broker group {broker}), and gantrymq.namesrv leads to cluster "
                f"{now.clusters[broker]}"
            )
    return ""


def made_again(was: Identity, now: Identity) -> str:
    """Return a text if a topic was made again since the batch was planned; else an empty one."""
    for place, life in sorted(was.lives.items()):
        if now.lives.get(place, life) != life:
            lives = f"generation {life} before, {now.lives[place]} now"
            return f"topic {place.topic} was deleted and made again on {place.broker} ({lives})"
    return ""


def gone_text(queue: Queue, at: int, to: int) -> str:
    """Return a text about messages that no broker has any more."""
    return f"{queue}: messages {at} to {to - 1} are gone, {to - at} in all"


def _same_cluster(start: Offset, seen: Seen) -> None:
    said = other_cluster(offsets.identity(start), seen.whose)
    if said:
        raise RuntimeError(f"{said}; {NEW_CHECKPOINT}")
    was, now = offsets.identity(start).clusters, seen.whose.clusters
    others = sorted(broker for broker in now if broker not in was)
    if was and others and was.keys() <= seen.gone.keys() and not {now[one] for one in others} & {*was.values()}:
        text = f"no topic has a queue on {', '.join(sorted(was))} any more, and {others[0]} is of another cluster"
        raise RuntimeError(f"{text} ({now[others[0]]}); {NEW_CHECKPOINT}")


def _lost_life(said: str, unread: int, is_strict: bool) -> None:
    if is_strict:
        raise RuntimeError(
            f"{said}; option failOnDataLoss=false reads the new one from its beginning, and gives up at least {unread} "
            f"messages of the former that were not read; {NEW_CHECKPOINT}"
        )
    log.warning("%s: at least %d messages of the former were not read; reading the new one", said, unread)
