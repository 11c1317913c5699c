"""Requests of the driver to brokers: queues with their first and next offsets, clusters and generations, and where a
query begins.

One request per topic and broker group returns ends and identity.  It is repeated a few times without an answer.  Then
the query fails, or, in a stream that has begun, the group counts as away (`standing`).
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, TypeVar

from gantry.client.admin import Admin
from gantry.client.blocking import BlockingPuller, MessageQueue, ReadFrom
from gantry.errors import OutcomeUnknownError, RefusedError, RemoteProtocolError, UnreachableError
from gantry.wire.codes import ResponseCode
from pyspark_gantrymq import standing
from pyspark_gantrymq.offsets import BrokerTopic, Identity, Queue
from pyspark_gantrymq.options import EARLIEST, Bound, Options
from pyspark_gantrymq.standing import Ends, Seen

GROUP = "gantrymq-spark"  # pulls under a name of its own: a reset of the user's group must not move a query
NAMESERVER = "gantrymq.namesrv"
AWAY = (UnreachableError, OutcomeUnknownError, RefusedError, RemoteProtocolError)
_SAMPLE = 32
_QUEUES_SHOWN = 8
_SAMPLE_BYTES = 256 << 10
T = TypeVar("T")
log = logging.getLogger(__name__)


class Told(NamedTuple):
    """A broker group's answer about one topic."""

    ends: dict[Queue, Ends]
    cluster_uid: str
    life: int | None
    is_master: bool


def queue_of(one: Queue) -> MessageQueue:
    """Return the queue as a `MessageQueue` of the client."""
    return MessageQueue(one.topic, one.broker, one.number)


def puller_of(options: Options, group: str = GROUP) -> BlockingPuller:
    """Return a puller that reads from masters or slaves, by the options."""
    return BlockingPuller(group, nameserver=options.nameserver, read_from=options.read_from)


def whole(options: Options) -> Seen:
    """Ask about every queue of the query; RuntimeError when one is away.  An assigned queue that is gone counts as
    away, unless losses are passed over.
    """
    seen = look(options)
    away = away_of(options, seen)
    if away:
        name, why = min(away.items())
        raise RuntimeError(f"{name} is away: {why}")
    for name, why in sorted(seen.gone.items()):
        log.warning("%s is done with: %s", name, why)
    return seen


def away_of(options: Options, seen: Seen) -> dict[str, str]:
    """Return the groups and topics that have to be waited for, with the reason."""
    gone = seen.gone if options.is_strict else {}
    return {**seen.away, **{name: f"{why}; option failOnDataLoss=false goes on without" for name, why in gone.items()}}


def look(options: Options, expected: Collection[Queue] = (), done: Collection[str] = ()) -> Seen:
    """Ask about every queue of the query; `expected`: queues that a stream has read so far, `done`: groups and topics
    of these that were gone before, and are not waited for.
    """
    seen = _looked(options, expected)
    for _ in range(options.retries):
        if not seen.away and seen.gone.keys() <= set(done):
            break
        time.sleep(options.pause_s)
        seen = _looked(options, expected)
    missing = {one for one in options.assigned - seen.ends.keys() if one.broker not in seen.gone}
    if missing and not seen.away:
        raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"the assigned queue {min(missing)} is not there")
    return seen


def masters_of(options: Options) -> BlockingPuller:
    """Return a puller that asks only masters: slaves learn later that a topic was made again."""
    return BlockingPuller(GROUP, nameserver=options.nameserver, read_from=ReadFrom.MASTER)


def identity(masters: BlockingPuller, options: Options, of: Iterable[BrokerTopic]) -> Identity:
    """Ask masters for cluster and generation of these places.

    A query that reads from slaves does not wait for a master: places whose master is away are left out.
    """
    clusters, lives = {}, {}
    for place in sorted(of):
        try:
            told, _ = masters.stats(place.topic, place.broker)
        except AWAY:
            if options.read_from is ReadFrom.MASTER:
                raise
            continue
        if told.cluster_uid:
            clusters[place.broker] = told.cluster_uid
        if told.generation is not None:
            lives[place] = told.generation
    return Identity(clusters, lives)


def bound(options: Options, where: Bound, of: Mapping[Queue, Ends]) -> dict[Queue, int]:
    """Return the offset of each of these queues at which a query begins or ends.

    ValueError: an offset is behind the queue's end, or an option names a queue that is not among these.
    """
    strange = sorted({*(where.exact or ()), *(where.each_ms or ())} - of.keys())
    if strange:
        there = ", ".join(map(str, sorted(of)[:_QUEUES_SHOWN])) + (", ..." if len(of) > _QUEUES_SHOWN else "")
        text = f"the starting or ending offsets name {strange[0]}, and the query reads no such queue"
        raise ValueError(f"{text}; it reads {there or 'none'}")

    def question(puller: BlockingPuller) -> dict[Queue, int]:
        found = {name: _at(puller, where, name, one) for name, one in of.items()}
        for name, at in found.items():
            if at > of[name].last:
                raise ValueError(f"{name} ends at {of[name].last}; the query was to begin or end at {at}")
        return found

    return asked(options, options.group or GROUP, question)


def sizes(options: Options, shares: Mapping[Queue, int], at: Mapping[Queue, int]) -> dict[Queue, int]:
    """Estimate the stored bytes per message of each queue, from a sample at the begin and one in the middle."""

    def question(puller: BlockingPuller) -> dict[Queue, int]:
        return {queue: _size(puller, queue, at[queue], share) for queue, share in shares.items() if share}

    return asked(options, GROUP, question)


def asked(options: Options, group: str, question: Callable[[BlockingPuller], T]) -> T:
    """Return the result of a request, which is repeated while brokers do not answer."""
    for left in range(options.retries, -1, -1):
        try:
            with puller_of(options, group) as puller:
                return question(puller)
        except (UnreachableError, OutcomeUnknownError, RefusedError):
            if not left:
                raise
            time.sleep(options.pause_s)
    raise AssertionError("the last attempt returns or raises")


def _looked(options: Options, expected: Collection[Queue]) -> Seen:
    away: dict[str, str] = {}
    told: dict[BrokerTopic, Told] = {}
    topics: list[str] = []
    routes: dict[str, set[str]] = {}
    with puller_of(options) as puller:
        try:
            topics = sorted(options.topics or {one.topic for one in options.assigned} or _matching(options))
        except AWAY as error:
            away[NAMESERVER] = str(error)
        for topic in topics:
            try:
                queues = puller.queues(topic)
            except UnreachableError as error:
                away[NAMESERVER] = str(error)
                break
            except AWAY as error:
                away[standing.topic_name(topic)] = str(error)
                continue
            routes[topic] = {one.broker_name for one in queues}
            for broker in sorted(routes[topic] - away.keys()):
                try:
                    told[BrokerTopic(topic, broker)] = _told(puller, topic, broker, queues)
                except AWAY as error:
                    away[broker] = str(error)
        cut = _cut(puller, expected, told, away)
    places = {standing.place_of(queue) for queue in expected}
    gone = {} if NAMESERVER in away else _gone(options, places, routes)
    ends = {name: one for each in told.values() for name, one in each.ends.items()}
    if options.assigned:
        ends = {name: one for name, one in ends.items() if name in options.assigned}
        told = {place: each for place, each in told.items() if place in {standing.place_of(one) for one in ends}}
    whose = Identity(
        {place.broker: each.cluster_uid for place, each in told.items() if each.cluster_uid},
        {place: each.life for place, each in told.items() if each.life is not None},
    )
    if options.read_from is ReadFrom.SLAVE and told:
        with masters_of(options) as masters:
            of_masters = identity(masters, options, [place for place, each in told.items() if not each.is_master])
        whose = Identity(whose.clusters, {**whose.lives, **of_masters.lives})
    behind = frozenset(place for place, each in told.items() if not each.is_master)
    return Seen(ends, whose, away, gone, behind, cut)


def _cut(
    puller: BlockingPuller, expected: Iterable[Queue], told: Mapping[BrokerTopic, Told], away: dict[str, str]
) -> dict[Queue, Ends]:
    """Return queues, with their ends, that a stream has read and the topic's route lacks, on groups that answer."""
    found = {}
    for queue in expected:
        place = standing.place_of(queue)
        if place in told and queue not in told[place].ends:
            try:
                found[queue] = Ends(puller.min_offset(queue_of(queue)), puller.max_offset(queue_of(queue)))
            except AWAY as error:
                away[queue.broker] = str(error)
    return found


def _gone(options: Options, expected: Collection[BrokerTopic], routes: Mapping[str, set[str]]) -> dict[str, str]:
    """Return groups that are not in the route of a topic that they had, and missing topics of a pattern."""
    gone = {}
    wanted = set(expected) | {standing.place_of(one) for one in options.assigned}
    for topic, broker in sorted(wanted):
        if topic in routes and broker not in routes[topic]:
            gone[broker] = f"not in the route of topic {topic}"
        elif topic not in routes and _is_matching(options, topic):
            gone[standing.topic_name(topic)] = "not there any more"
    return gone


def _is_matching(options: Options, topic: str) -> bool:
    return bool(options.pattern) and re.fullmatch(options.pattern, topic) is not None


def _told(puller: BlockingPuller, topic: str, broker: str, queues: list[MessageQueue]) -> Told:
    found, is_master = puller.stats(topic, broker)
    ends = {}
    for one in queues:
        if one.broker_name == broker:
            # A topic whose queues were cut down is told by those that may be written to only.
            known = found.ends.get(one)
            first, last = known if known is not None else (puller.min_offset(one), puller.max_offset(one))
            ends[Queue(topic, broker, one.queue_id)] = Ends(first, last)
    return Told(ends, found.cluster_uid, found.generation if is_master else None, is_master)


def _at(puller: BlockingPuller, where: Bound, name: Queue, ends: Ends) -> int:
    otherwise = ends.first if where.otherwise == EARLIEST else ends.last
    at_ms = where.at_ms if where.each_ms is None else where.each_ms.get(name)
    if at_ms is not None:
        at = max(ends.first, min(ends.last, puller.offset_at(queue_of(name), at_ms)))
        if at == ends.last and where.is_match_needed:
            raise ValueError(
                f"{name} has no message of {at_ms} ms or later; startingOffsetsByTimestampStrategy is error"
            )
        return at
    if where.is_committed:
        committed = puller.committed(queue_of(name))
        return otherwise if committed is None else committed
    if where.exact is None or name not in where.exact:
        return otherwise
    at = where.exact[name]
    return at if at >= 0 else ends.first if at == EARLIEST else ends.last


def _size(puller: BlockingPuller, queue: Queue, at: int, share: int) -> int:
    found = []
    for offset in {at, at + share // 2}:
        pulled = puller.pull(queue_of(queue), offset, count_max=_SAMPLE, bytes_max=_SAMPLE_BYTES, is_raw=True)
        if pulled.records:
            found.append(len(pulled.records) // max(1, pulled.next_offset - offset))
    return max(found, default=0)


def _matching(options: Options) -> set[str]:
    pattern = re.compile(options.pattern)

    async def ask() -> set[str]:
        async with Admin(nameserver=options.nameserver) as admin:
            return {topic for topic in await admin.topics() if pattern.fullmatch(topic)}

    return asyncio.run(ask())
