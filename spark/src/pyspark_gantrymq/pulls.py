"""The work of a task: it pulls every message of its stretches, or reports which are missing.

Messages that are gone when the task reads, by retention or from a damaged store, are counted (`gaps`): an error, or
with failOnDataLoss=false a line in the executor's log.  Only a master's answer counts for this: a slave may begin
later, or be behind.  So when a slave reports a loss, the master is asked for the same messages.

A broker that does not answer, or a slave that is behind, is asked again for as long as option maxOutage says, in a
repeated task for PATIENCE_S at most; then the task fails, and Spark repeats it.

A topic may be made again between planning and reading, or before a batch is repeated.  So a task compares cluster and
generation with the plan's, before its first stretch and after its last.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyarrow import compute
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from gantry.client.blocking import BlockingPuller, PullResult, ReadFrom, Sql
from gantry.errors import OutcomeUnknownError, RefusedError, UnreachableError
from gantry.model.subscription import tags_of
from gantry.wire.codes import ResponseCode
from pyspark_gantrymq import ahead, gaps, survey
from pyspark_gantrymq.offsets import NOBODY, BrokerTopic, Identity, Stretch
from pyspark_gantrymq.options import Options
from pyspark_gantrymq.standing import NEW_CHECKPOINT, gone_text, made_again, other_cluster, place_of
from pyspark_gantrymq.vectors import Pulled

PATIENCE_S = 60.0
_PULL_BYTES = 4 << 20
_PIECES_MAX = 4096
_PAUSE_S = 0.2
_LAGS_MAX = 5  # answers of a slave that is behind, before its master is asked
log = logging.getLogger(__name__)


@dataclass
class Task(InputPartition):
    """One task's stretches, in the order in which it reads them."""

    stretches: list[Stretch]
    whose: Identity = NOBODY


def read(options: Options, names: Sequence[str], partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a task."""
    if not isinstance(partition, Task):
        return  # Spark's stand-in for a plan without any partition
    task = TaskContext.get()
    is_repeated = task is not None and task.attemptNumber() > 0
    if is_repeated:
        options = replace(options, outage_s=min(options.outage_s, PATIENCE_S))
    places = sorted({place_of(one.queue) for one in partition.stretches})
    with survey.masters_of(options) as masters:
        deleted = set() if is_repeated else _deleted(masters, options, partition)
        there = [place for place in places if place.topic not in deleted]
        held = [place for place in there if _holds(masters, options, partition, place)]
        wanted = [one for one in partition.stretches if place_of(one.queue) in held]

        @contextlib.contextmanager
        def opened() -> Iterator[Callable[[Stretch], Iterator[pa.RecordBatch]]]:
            with survey.puller_of(options) as puller:
                sure = puller if options.read_from is ReadFrom.MASTER else masters
                yield lambda one: _stretch(puller, sure, options, names, one)

        yield from ahead.in_order(_pieces(options, wanted), options.lanes, opened)
        for place in held:  # rows that were read already cannot be dropped
            _holds(masters, replace(options, is_strict=True), partition, place)


def _pieces(options: Options, stretches: Sequence[Stretch]) -> list[Stretch]:
    """Divide stretches into pieces for lanes, each as large as one answer; with a filter they are not divided."""
    if options.lanes == 1 or options.is_filtered:
        return list(stretches)
    found = []
    for one in stretches:
        rows = max(options.pull_rows, (one.end - one.start) // _PIECES_MAX)
        found += [Stretch(one.queue, at, min(at + rows, one.end)) for at in range(one.start, one.end, rows)]
    return found


def _deleted(masters: BlockingPuller, options: Options, task: Task) -> set[str]:
    """Return the topics that no broker has any more; their messages are counted as lost and passed over.

    A topic also disappears when all its brokers have been unreachable for some time; so this waits for maxOutage.
    """
    found: set[str] = set()
    for topic in sorted({one.queue.topic for one in task.stretches} if not options.is_strict else ()):
        patience = _Patience(options, f"topic {topic}")
        while topic not in found:
            try:
                masters.queues(topic)
                break
            except survey.AWAY as error:
                if not isinstance(error, RefusedError) or error.code != ResponseCode.TOPIC_NOT_EXIST:
                    break  # other errors are handled by the pulls, which wait
            if patience.is_over:
                count = sum([one.end - one.start for one in task.stretches if one.queue.topic == topic])
                log.warning("topic %s is not there any more: %d messages were to be read and are lost", topic, count)
                found.add(topic)
            else:
                patience.wait("it is not there")
    return found


def _holds(masters: BlockingPuller, options: Options, task: Task, place: BrokerTopic) -> bool:
    """Return whether the topic is still the one of the plan; False when not, and losses are passed over."""
    whose = task.whose.at(place)
    if not whose.lives:
        return True
    patience = _Patience(options, f"{place.topic} on {place.broker}")
    while True:
        try:
            now = survey.identity(masters, options, [place])
            break
        except survey.AWAY as error:
            patience.wait(f"no answer: {error}")
    cluster, remade = other_cluster(whose, now), made_again(whose, now)
    count = sum([one.end - one.start for one in task.stretches if place_of(one.queue) == place])
    if cluster or (remade and options.is_strict):
        raise RuntimeError(f"{cluster or remade}; {count} messages of the former were to be read; {NEW_CHECKPOINT}")
    if remade:
        log.warning("%s: %d messages of the former were to be read and are lost", remade, count)
    return not remade


class _Patience:
    """The time for which a task may wait without progress."""

    def __init__(self, options: Options, what: str) -> None:
        self._limit_s = options.outage_s
        self._what = what
        self._since = time.monotonic()

    @property
    def is_over(self) -> bool:
        """Return whether the time is over."""
        return time.monotonic() > self._since + self._limit_s

    def wait(self, said: str) -> None:
        """Sleep for a moment; RuntimeError when the time is over."""
        if self.is_over:
            raise RuntimeError(f"{self._what} did not come within {self._limit_s:.0f} s (option maxOutage): {said}")
        time.sleep(_PAUSE_S)


def _stretch(
    puller: BlockingPuller, masters: BlockingPuller, options: Options, names: Sequence[str], one: Stretch
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of one stretch; where `puller` lacks messages, `masters` is asked."""
    at, patience, asked = one.start, _Patience(options, f"{one.queue}: offset {one.start}"), puller
    lags, doubt = 0, ""
    while at < one.end:
        found = _pull(asked, options, one, at)
        if isinstance(found, str):
            patience.wait(found + doubt)
            asked = puller
            continue
        pulled = Pulled(found.records, one.queue.broker, options.is_checked)
        lost, to = gaps.judged(one._replace(start=at), found, pulled.offsets.tolist(), options.is_filtered)
        if lost and asked is not masters:
            asked, doubt = masters, f"; a slave says: {gone_text(*lost[0])}"
            continue
        for each in lost:
            _lost(options, each)
        if to <= at:
            patience.wait(f"{found.status.value}; it ends at {found.max_offset}")
            lags += 1
            asked = masters if lags >= _LAGS_MAX else asked
            continue
        batch = _batch(pulled, options, names, one.end) if found.records else ()
        if len(batch):
            yield batch
        at, patience = to, _Patience(options, f"{one.queue}: offset {to}")
        lags, doubt = 0, ""


def _batch(pulled: Pulled, options: Options, names: Sequence[str], end: int) -> pa.RecordBatch:
    """Return the wanted messages as columns.  Brokers compare only hashes of tags ("Aa" and "BB" have the same)."""
    wanted = tags_of(options.tags)
    if not wanted:
        return pulled.batch(names, end)
    batch = pulled.batch([*names, "tags"], end)
    is_wanted = compute.is_in(batch.column(len(names)), value_set=pa.array(wanted, pa.string()))
    return batch.select(list(range(len(names)))).filter(is_wanted)


def _pull(puller: BlockingPuller, options: Options, one: Stretch, at: int) -> PullResult | str:
    """Pull once; return the answer, or a text that says why there is none now."""
    count = min(options.pull_rows, one.end - at)
    wanted = Sql(options.sql) if options.sql else options.tags
    try:
        queue = survey.queue_of(one.queue)
        return puller.pull(queue, at, tags=wanted, count_max=count, bytes_max=_PULL_BYTES, is_raw=True)
    except RefusedError as error:
        if not error.retriable and not error.stale_route:
            raise
        return f"no answer: {error}"
    except (UnreachableError, OutcomeUnknownError) as error:
        return f"no answer: {error}"


def _lost(options: Options, one: Stretch) -> None:
    text = gone_text(*one)
    if options.is_filtered:
        text += ", whether the filter would have let them through or not"
    if options.is_strict:
        raise RuntimeError(f"{text}; option failOnDataLoss=false passes over them")
    log.warning("%s; passed over", text)
