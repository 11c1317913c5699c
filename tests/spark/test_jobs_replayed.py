"""Replays of dead letters that meet one that can never be sent, or what a killed run has left, on a real broker.

Whatever happened, a letter is there once or not at all, and what the table says of it is true.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from gantry.client.admin import Admin
from gantry.errors import GantryError
from gantry.model.route import PERM_READ
from testkit.jobdatabase import ask, tell
from testkit.postgres import Postgres
from testkit.sinktopic import left_open, messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

letters = pytest.importorskip("pyspark_gantrymq.jobs.letters", reason="missing pyspark; make spark-env")
replay = pytest.importorskip("pyspark_gantrymq.jobs.replay")
runs = pytest.importorskip("pyspark_gantrymq.jobs.runs")
triage = pytest.importorskip("pyspark_gantrymq.jobs.triage")

LETTER = (
    "INSERT INTO dead_letter (consumer_group, message_id, replays, topic, broker, queue_id, queue_offset, "
    "message_keys, tags, body, properties, error_class, route, reconsume_times, born_at_ms, died_at_ms, state) "
    "VALUES ('packing', %s, 0, %s, 'b', 0, 1, '', '', %s, '{}', 'ReadTimeout', 'transient', 16, 1, 1, 'approved')"
)
TOO_LARGE = b"x" * (5 << 20)  # no topic takes so much
SMALLER = "UPDATE dead_letter SET body = 'tea' WHERE message_id = 'large'"
LARGER = "UPDATE dead_letter SET body = decode(repeat('78', 5 << 20), 'hex') WHERE message_id = 'large'"


class Replay:
    """The job over a table of its own, by its command line or step by step."""

    def __init__(self, spark: SparkSession, nameserver: str, topic: str, database: str) -> None:
        self.spark, self.database, self.topic, self.sink = spark, database, topic, f"replay-{topic}"
        self.nameserver = nameserver
        triage.prepare(database)

    def write(self, **bodies: bytes) -> None:
        with psycopg.connect(self.database) as connection:
            for message_id, body in bodies.items():
                connection.execute(LETTER, [message_id, self.topic, body])

    def send(self, *flags: str) -> int:
        return int(replay.main([
            "--database", self.database, "--namesrv", self.nameserver, "--sink", self.sink, "--send", *flags
        ]))  # fmt: skip

    def killed(self, owner: str = "run-1") -> Any:
        """What the sink says of the next run, which is killed before it can tell the database."""
        found = []

        def send(rows: DataFrame, run: int, began_ms: int) -> None:
            sink = {"mode": "transactional", "sinkId": self.sink, "batchId": str(run), "owner": owner}
            found.append(runs.send(rows, {"gantrymq.namesrv": self.nameserver, **sink}))
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            replay.one_run(self.spark, self.database, 1, send)
        return found[0]

    def states(self) -> dict[str, str]:
        return dict(ask(self.database, "SELECT message_id, state FROM dead_letter"))

    def there(self) -> list[str]:
        """Ids in the topic; nothing of the sink may be open."""
        assert left_open(self.nameserver, self.sink) == []
        return sorted(message.message_id for message in messages(self.nameserver, self.topic))


@pytest.fixture
def job(
    spark: SparkSession, nameserver: str, topic: str, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> Replay:
    monkeypatch.setattr(replay, "FIRST_DELAY_LEVEL", 0)  # at once
    return Replay(spark, nameserver, topic, postgres.database())


@pytest.mark.parametrize("mode", ["transactional", pytest.param("at-least-once", marks=pytest.mark.slow)])
def test_letters_that_can_never_be_sent_hold_nobody_up(job: Replay, mode: str) -> None:
    how = ("--option", f"mode={mode}")
    job.write(first=b"tea", large=TOO_LARGE, homeless=b"coffee", last=b"milk")
    tell(job.database, "UPDATE dead_letter SET topic = '' WHERE message_id = 'homeless'")
    assert job.send(*how) == 1
    assert job.there() == ["first", "last"]
    assert job.states() == {"first": "sent", "last": "sent", "large": "waiting", "homeless": "waiting"}
    why = dict(ask(job.database, "SELECT message_id, refused FROM dead_letter WHERE refused IS NOT NULL"))
    assert "blank" in why["homeless"] and "5242880" in why["large"]
    assert job.send(*how) == 0, "nothing is left for the next run"
    assert replay.main(["--database", job.database, "--reject", "homeless", "--by", "ann"]) == 0
    tell(job.database, SMALLER)
    assert replay.main(["--database", job.database, "--approve", "large", "--by", "ann"]) == 0
    assert job.send(*how) == 0
    assert job.there() == ["first", "large", "last"]
    assert job.states() == {"first": "sent", "last": "sent", "large": "sent", "homeless": "rejected"}


@pytest.mark.parametrize("is_late", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_run_that_was_delivered_stays_so_when_a_letter_of_it_could_not_be_sent_any_more(
    job: Replay, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_late:  # a driver that was taken for dead commits the run while the next one writes it
        monkeypatch.setattr(runs, "_is_decided", lambda given, one: False)
    job.write(first=b"tea", large=b"coffee")
    assert job.killed().is_delivered
    assert set(job.states().values()) == {"sending"}
    tell(job.database, LARGER, "UPDATE dead_letter_run SET started_at_ms = 1")
    assert job.send() == 0
    assert job.there() == ["first", "large"]
    assert set(job.states().values()) == {"sent"}


def test_a_run_that_was_closed_stays_so_when_its_letters_could_be_sent_now(job: Replay) -> None:
    job.write(first=b"tea", large=TOO_LARGE)
    closed = job.killed()
    assert not closed.is_delivered and [one.message_id for one in closed.refused] == ["large"]
    tell(job.database, SMALLER)
    assert job.killed() == runs.Sent(False)
    assert job.there() == []
    tell(job.database, "UPDATE dead_letter_run SET started_at_ms = 1")
    assert job.send() == 0
    assert job.there() == ["first", "large"]
    assert set(job.states().values()) == {"sent"}


def test_letters_of_a_sharding_key_are_sent_in_the_order_in_which_they_died(job: Replay) -> None:
    job.write(**{f"id{99 - nth}": str(nth).encode() for nth in range(30)})
    tell(
        job.database,
        """UPDATE dead_letter SET properties = '{"__SHARDINGKEY":"s1"}', """
        "queue_offset = 99 - substr(message_id, 3)::bigint",
    )
    assert job.send() == 0
    found = messages(job.nameserver, job.topic)
    assert [message.body.decode() for message in found] == [str(nth) for nth in range(30)]
    assert {message.properties["__SHARDINGKEY"] for message in found} == {"s1"}


@pytest.mark.slow
def test_a_letter_that_nobody_takes_for_now_fails_its_run_and_may_be_rejected(job: Replay) -> None:
    async def forbid() -> None:
        async with Admin(nameserver=job.nameserver) as admin:
            await admin.create_topic(f"{job.topic}-shut", queues=1, perm=PERM_READ)

    asyncio.run(forbid())
    job.write(first=b"tea", shut=b"coffee")
    tell(job.database, f"UPDATE dead_letter SET topic = '{job.topic}-shut' WHERE message_id = 'shut'")
    with pytest.raises(Exception, match="no queue that may be written to now"):
        job.send("--option", "sendTimeoutMs=500")
    assert set(job.states().values()) == {"approved"}
    assert replay.main(["--database", job.database, "--reject", "shut", "--by", "ann"]) == 0
    assert job.send() == 0
    assert job.there() == ["first"]


@pytest.mark.slow
def test_a_run_that_the_sink_knows_as_another_one_is_left_as_it_is(job: Replay) -> None:
    job.write(first=b"tea")
    assert job.killed(owner="run-of-another-database").is_delivered
    for _ in range(2):
        with pytest.raises(GantryError, match="belongs to another owner"):
            job.send()
        assert job.states() == {"first": "sending"}
    assert job.there() == ["first"]
