"""Topics that nobody writes to for four days: what passes away meanwhile, and a query that goes on exactly once.

The broker's clock is moved from night to night, with the broker's own defaults: what is older than 72 hours goes at
four in the morning, and so do transactions that nobody ends.  Other topics are written to, or else the last segment,
which never goes, would keep everything.  After the four days

    gone       what was read, what was written; a transaction without an answer, to TRANS_CHECK_MAX_TIME_TOPIC;
               a sink that was for one batch only
    there      where the group is; the sink and its newest decision; halves of a sink that nobody has decided about
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gantry.client.blocking import BlockingPuller
from gantry.client.blockingsinks import BlockingSinks
from gantry.errors import GantryError
from gantry.leaves import properties
from testkit.frameproxy import HOST, FrameProxy
from testkit.movedclock import DAY_MS, HOUR_MS, Hands
from testkit.process import GantryProcess
from testkit.rawclient import RawClient, send_fields
from testkit.sinkdriver import files, run_to_end
from testkit.sinkkills import LINES, PLACES, kill_at
from testkit.sinktopic import bodies, left_open, once, sink_in, until
from testkit.sources import ROOT
from testkit.sparkstream import make_topic, send_bodies, stream, work_off

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

PYTHON = str(ROOT / ".venv" / "bin" / "python")
# Segments of some hundred messages; anyone who is asked about a transaction is asked soon.
CONFIG = {
    "messages.body_bytes_max": str(1 << 14),
    "store.segment_bytes": str(1 << 18),
    "transactions.check_interval_s": "0.5",
}
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
KILOBYTE = "x" * 1000


@contextlib.contextmanager
def running(folder: Path, **more: str) -> Iterator[tuple[GantryProcess, Hands, str]]:
    clock = Hands(folder / "clock")
    command = clock.command(PYTHON, folder / "data")
    with GantryProcess(folder / "data", CONFIG | more, command=command) as process:
        yield process, clock, "{}:{}".format(*process.addresses["nameserver"])


def ends(nameserver: str, topic: str) -> tuple[int, int]:
    """How many messages of a topic are gone, and how many there ever were; asked again where nobody answers in time."""
    found: list[tuple[int, int]] = []

    def is_told() -> bool:
        with contextlib.suppress(GantryError), BlockingPuller("looking", nameserver=nameserver) as puller:
            queues = puller.queues(topic)
            found.append((sum(map(puller.min_offset, queues)), sum(map(puller.max_offset, queues))))
        return bool(found)

    until(is_told, f"the ends of {topic} are told")
    return found[0]


def four_days(clock: Hands, nameserver: str) -> None:
    """Pass, in a cluster where something else goes on: at the end it is morning, and nothing more will be deleted."""
    begun_ms = clock.now_ms
    send_bodies(nameserver, "Others", [KILOBYTE.encode()] * 1000)
    while clock.now_ms - begun_ms < 4 * DAY_MS:
        clock.nights(1)


def morning(clock: Hands) -> None:
    """The hour in which brokers delete is over."""
    clock.add(HOUR_MS)


def leave_a_transaction_open(broker: tuple[str, int], topic: str) -> None:
    """A half of a producer that is never seen again."""
    pairs = {"UNIQ_KEY": "nobody's", "TRAN_MSG": "true", "PGROUP": "gone"}
    fields = send_fields(topic, 0) | {"f": "4", "i": properties.pack(pairs).decode()}
    with RawClient(broker) as client:
        assert client.ask(310, fields, b"half").code == 0


def copied(spark: SparkSession, nameserver: str, source: str) -> DataFrame:
    return stream(spark, nameserver, subscribe=source, startingOffsets="earliest", groupId="copying").select("body")


def test_a_query_that_runs_over_four_idle_days_goes_on_with_every_message_once(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    into, checkpoint = f"{topic}-out", tmp_path / "checkpoint"
    with running(tmp_path) as (process, clock, nameserver):
        for each in (topic, into, "Others"):
            make_topic(nameserver, each, 1)
        target = {"gantrymq.namesrv": nameserver, "topic": into, "mode": "transactional"}
        writer = copied(spark, nameserver, topic).writeStream.format("gantrymq").options(**target)
        writer = writer.option("checkpointLocation", str(checkpoint))
        query = writer.trigger(processingTime="1 second").start()

        def copies(count: int) -> None:
            def has_come() -> bool:
                assert query.isActive, query.exception()
                return ends(nameserver, into)[1] == count

            until(has_come, f"{count} messages are copied")

        try:
            send_bodies(nameserver, topic, [f"{KILOBYTE}{nth}".encode() for nth in range(1000)])
            copies(1000)
            send_bodies(nameserver, topic, [KILOBYTE.encode()])  # the group hears of a batch with the next one
            copies(1001)
            sink = sink_in(checkpoint)
            copied_once = spark.range(3).selectExpr("cast('passing' as binary) as body").write.format("gantrymq")
            copied_once.mode("append").options(**{**target, "topic": "Others"}).save()
            leave_a_transaction_open(process.broker, into)
            with BlockingSinks(nameserver) as sinks, BlockingPuller("copying", nameserver=nameserver) as puller:
                (queue,) = puller.queues(topic)
                group_at, batch = puller.committed(queue), decided(sinks, sink)
                assert group_at is not None and group_at >= 1000
                assert len(sinks.look()[0]) == 2, "the stream's sink, and that of a single batch"

                four_days(clock, nameserver)
                until(lambda: ends(nameserver, topic) == (1001, 1001), "what was read is gone")
                until(lambda: ends(nameserver, into) == (1001, 1001), "what was written is gone")
                until(lambda: ends(nameserver, GIVEN_UP)[1] == 1, "nobody ends that transaction")
                assert [info.sink for info in sinks.look()[0]] == [sink]
                assert (puller.committed(queue), decided(sinks, sink)) == (group_at, batch)
                assert left_open(nameserver) == [] and query.isActive, query.exception()
                morning(clock)

                later = [f"{KILOBYTE}{nth}" for nth in range(1001, 1301)]
                send_bodies(nameserver, topic, [each.encode() for each in later])
                copies(1301)
                assert decided(sinks, sink) > batch
        finally:
            query.stop()
        assert bodies(nameserver, into) == sorted(later)
        again = writer.trigger(availableNow=True).start()
        again.awaitTermination()
        assert ends(nameserver, into) == (1001, 1301)
        assert left_open(nameserver, sink) == []


def decided(sinks: BlockingSinks, sink: str) -> int:
    """The newest batch of a sink."""
    (info,) = sinks.look(sink)[0]
    assert info.is_done
    return info.batch


def test_a_query_that_stood_still_for_four_days_goes_on_where_it_was(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    with running(tmp_path) as (_, clock, nameserver):
        for each in (topic, "Others"):
            make_topic(nameserver, each, 1)
        send_bodies(nameserver, topic, [KILOBYTE.encode()] * 600)
        assert sum(work_off(spark, nameserver, tmp_path, **options)) == 600
        four_days(clock, nameserver)
        until(lambda: ends(nameserver, topic) == (600, 600), "what was read is gone")
        morning(clock)
        assert work_off(spark, nameserver, tmp_path, **options) == []
        send_bodies(nameserver, topic, [KILOBYTE.encode()] * 50)
        assert sum(work_off(spark, nameserver, tmp_path, **options)) == 50
        rows = spark.read.parquet(str(tmp_path / "out")).select("queueOffset").collect()
        assert sorted(row.queueOffset for row in rows) == list(range(650))


def test_a_batch_that_a_killed_driver_left_is_there_once_when_its_query_starts_after_four_days(
    topic: str, tmp_path: Path
) -> None:
    with (
        running(tmp_path, **{"network.advertise": HOST}) as (process, clock, nameserver),
        FrameProxy(process.broker) as proxy,
    ):
        make_topic(nameserver, "Others", 1)
        expected = files(tmp_path, 2, LINES)
        # The first batch: rows that nobody has decided about.
        kill_at(PLACES["before the commit is decided"], nameserver, topic, tmp_path, proxy)
        proxy.wait_for(None)
        sink = sink_in(tmp_path / "checkpoint")
        waiting = sum(part.halves for part in left_open(nameserver, sink))
        assert waiting >= LINES
        four_days(clock, nameserver)
        until(lambda: ends(nameserver, "Others")[0] > 0, "what is old is deleted")
        morning(clock)
        open_parts = left_open(nameserver, sink)
        assert sum(part.halves for part in open_parts) == waiting
        assert {part.verdict for part in open_parts} == {"undecided"}
        assert min(part.age_ms for part in open_parts) > 4 * DAY_MS
        # The second one: decided, and nobody was told.
        place = PLACES["when it is decided and nobody was told"]
        kill_at(place, nameserver, topic, tmp_path, proxy)
        proxy.wait_for(None)
        four_days(clock, nameserver)
        morning(clock)
        run_to_end(nameserver, topic, tmp_path)
        assert ends(nameserver, topic)[1] == len(expected), "each line has one place, read or not, gone or there"
        left = bodies(nameserver, topic)
        assert len(left) == len(set(left)) and set(expected[LINES:]) <= set(left) <= set(expected)
        with BlockingSinks(nameserver) as sinks:
            assert decided(sinks, sink) == 1
        once(nameserver, topic, left, tmp_path / "checkpoint")
