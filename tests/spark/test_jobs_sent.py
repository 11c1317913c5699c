"""Jobs that send, from their command line to a real broker and back: the message comes once more, under its own id."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gantry.client.blocking import BlockingProducer, BlockingPuller
from gantry.client.consumer import Consumer
from gantry.errors import UnreachableError
from gantry.model.message import Message
from testkit.jobdatabase import ask, stubs, tell
from testkit.postgres import Postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

archive = pytest.importorskip("pyspark_gantrymq.jobs.archive", reason="missing pyspark; make spark-env")
idempotent = pytest.importorskip("pyspark_gantrymq.jobs.idempotent")
places = pytest.importorskip("pyspark_gantrymq.jobs.places")
replay = pytest.importorskip("pyspark_gantrymq.jobs.replay")
resend = pytest.importorskip("pyspark_gantrymq.jobs.resend")
restore = pytest.importorskip("pyspark_gantrymq.jobs.restore")
sinkoptions = pytest.importorskip("pyspark_gantrymq.sinkoptions")
triage = pytest.importorskip("pyspark_gantrymq.jobs.triage")


def read(spark: SparkSession, nameserver: str, topic: str) -> list[Any]:
    """What is in a topic, in the order of its queues."""
    found = spark.read.format("gantrymq").option("gantrymq.namesrv", nameserver).option("subscribe", topic).load()
    return sorted(found.collect(), key=lambda row: (row.queueId, row.queueOffset))


def send(nameserver: str, topic: str, count: int, **properties: str) -> list[str]:
    with BlockingProducer("shop", nameserver=nameserver) as producer:
        messages = [
            Message(topic, f'{{"order": {nth}}}'.encode(), tags="card", keys=(f"k{nth}",), properties=properties)
            for nth in range(count)
        ]
        return [producer.send(message).message_id for message in messages]


def test_what_was_archived_comes_again_as_it_was(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    sent = send(nameserver, topic, 30, shop="north")
    folder, again = str(tmp_path / "archive"), f"{topic}-again"
    checkpoint = str(tmp_path / "checkpoint")
    flags = ["--namesrv", nameserver, "--subscribe", topic, "--checkpoint", checkpoint, "--once"]
    assert archive.main([*flags, "--to", folder]) == 0
    flags = ["--namesrv", nameserver, "--archive", folder, "--topic", topic, "--into", again]
    assert restore.main([*flags, "--from", "2000-01-01T00:00:00Z", "--to", "2100-01-01T00:00:00Z"]) == 0
    before = {row.msgId: row for row in read(spark, nameserver, topic)}
    after = {row.msgId: row for row in read(spark, nameserver, again)}
    assert set(before) == set(after) == set(sent)
    for message_id, row in after.items():
        was = before[message_id]
        assert (bytes(row.body), row["keys"], row.tags) == (bytes(was.body), was["keys"], was.tags)
        assert row.properties["shop"] == "north"


def by_key(rows: list[Any]) -> dict[str, list[tuple[int, str]]]:
    """Queue and body of the messages of each sharding key, in the order of their queues."""
    found: dict[str, list[tuple[int, str]]] = {}
    for row in rows:
        found.setdefault(row.properties["__SHARDINGKEY"], []).append((row.queueId, bytes(row.body).decode()))
    return found


def test_what_had_a_sharding_key_is_restored_in_its_order(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    given = [(str(nth).encode(), f"s{nth % 5}") for nth in range(100)]
    rows = spark.createDataFrame(given, "body binary, shardingKey string").coalesce(1)
    rows.write.format("gantrymq").mode("append").option("gantrymq.namesrv", nameserver).option("topic", topic).save()
    folder, again = str(tmp_path / "archive"), f"{topic}-again"
    flags = ["--namesrv", nameserver, "--subscribe", topic, "--checkpoint", str(tmp_path / "checkpoint"), "--once"]
    assert archive.main([*flags, "--to", folder]) == 0
    assert restore.main(["--namesrv", nameserver, "--archive", folder, "--topic", topic, "--into", again]) == 0
    before, after = by_key(read(spark, nameserver, topic)), by_key(read(spark, nameserver, again))
    assert after == before
    for key, stored in after.items():
        assert [text for _, text in stored] == [str(nth) for nth in range(100) if f"s{nth % 5}" == key]
        assert len({queue for queue, _ in stored}) == 1


def test_a_stub_that_is_missing_arrives_under_its_id(
    spark: SparkSession, nameserver: str, topic: str, postgres: Postgres
) -> None:
    database = postgres.database()
    idempotent.prepare(database)
    tell(
        database,
        *stubs(f"""SELECT 'lost', '{topic}', 'tea', 'k1', '{{"__SHARDINGKEY":"s1"}}', 'b', 0, 1"""),
        f"INSERT INTO guarantee_log VALUES ('packing', 'later', '{topic}', 'b', 0, 2, 1)",
    )
    flags = ["--namesrv", nameserver, "--database", database, "--group", "packing", "--once"]
    assert resend.main(flags) == 0
    assert resend.main(flags) == 0
    (row,) = read(spark, nameserver, topic)
    assert (row.msgId, bytes(row.body), row["keys"]) == ("lost", b"tea", "k1")
    assert row.properties["__SHARDINGKEY"] == "s1"
    stub = ask(database, "SELECT resends, broker, queue_id, queue_offset FROM guarantee_delivery")
    assert stub == [(1, row.brokerName, row.queueId, row.queueOffset)]
    assert resend.main([*flags, "--void", "lost,unheard of", "--by", "ann"]) == 0
    assert ask(database, "SELECT status, changed_by FROM guarantee_stub") == [("void", "ann")]


def test_nothing_is_claimed_while_nobody_could_take_it(spark: SparkSession, postgres: Postgres) -> None:
    database = postgres.database()
    idempotent.prepare(database)
    tell(
        database,
        *stubs("SELECT 'lost', 'T', 'tea', '', '{}', 'b', 0, 1"),
        "INSERT INTO guarantee_log VALUES ('packing', 'later', 'T', 'b', 0, 2, 1)",
    )
    with socket.socket() as nobody:  # bound and not listening: anyone who comes is refused
        nobody.bind(("127.0.0.1", 0))
        flags = ["--namesrv", "{}:{}".format(*nobody.getsockname()), "--database", database, "--group", "packing"]
        with pytest.raises(UnreachableError):
            resend.main([*flags, "--once"])
    assert ask(database, "SELECT resends, next_resend_at_ms FROM guarantee_delivery") == [(0, 1)]


def test_one_that_sends_hears_where_each_message_is(nameserver: str, topic: str) -> None:
    options = sinkoptions.read({"gantrymq.namesrv": nameserver, "deadLetterTopic": f"{topic}-dead"})
    row = {"topic": topic, "body": b"x" * 10, "keys": "k", "tags": "", "properties": [("p", "q")]}
    rows = [{**row, "msgId": f"i{nth}"} for nth in range(300)]
    refused = {**rows[0], "msgId": "large", "body": b"x" * (5 << 20)}  # no topic takes so much
    found = {place.message_id: place for place in places.sent(options, [*rows[:150], refused, *rows[150:]])}
    assert set(found) == {row["msgId"] for row in rows}
    with BlockingPuller("looking", nameserver=nameserver) as puller:
        for queue in puller.queues(topic):
            of = sorted(
                (place.queue_offset, place.message_id)
                for place in found.values()
                if (place.broker, place.queue_id) == (queue.broker_name, queue.queue_id)
            )
            stored: list[tuple[int, str]] = []
            while len(stored) < puller.max_offset(queue):
                messages = puller.pull(queue, len(stored)).messages
                stored += [(message.queue_offset, message.message_id) for message in messages]
            assert of == stored


def test_a_stub_that_is_refused_holds_nobody_up(
    spark: SparkSession, nameserver: str, topic: str, postgres: Postgres, capsys: pytest.CaptureFixture[str]
) -> None:
    database = postgres.database()
    idempotent.prepare(database)
    tell(
        database,
        *stubs(f"SELECT 'id-' || n, '{topic}', 'x', '', '{{}}', 'b', 0, n FROM generate_series(1, 200) n"),
        "UPDATE guarantee_stub SET body = decode(repeat('78', 5 << 20), 'hex') WHERE message_id IN ('id-50', 'id-120')",
        f"INSERT INTO guarantee_log VALUES ('packing', 'later', '{topic}', 'b', 0, 1000, 1)",
    )
    flags = ["--namesrv", nameserver, "--database", database, "--group", "packing", "--once"]
    assert resend.main(flags) == 1
    told = capsys.readouterr()
    assert '"sent": 198, "refused": 2' in told.out
    assert "message id-50 is refused: " in told.err and "message id-120 is refused: " in told.err
    found = {row.msgId: row for row in read(spark, nameserver, topic)}
    assert set(found) == {f"id-{n}" for n in range(1, 201)} - {"id-50", "id-120"}
    for message_id, at in ask(database, "SELECT message_id, queue_offset FROM guarantee_delivery WHERE resends = 1"):
        assert at == found[message_id].queueOffset if message_id in found else int(message_id[3:])


def test_places_of_a_transaction_are_not_told(spark: SparkSession, nameserver: str) -> None:
    with pytest.raises(ValueError, match="leave out option mode"):
        places.send(spark.range(1), {"gantrymq.namesrv": nameserver, "mode": "transactional"})


async def give_up(nameserver: str, group: str, topic: str, count: int) -> None:
    """Let a group receive messages and declare each of them dead."""
    async with Consumer(group, nameserver=nameserver, subscription={topic: "*"}) as consumer:
        async for message in consumer:
            await message.give_up()
            count -= 1
            if not count:
                return


def test_dead_letters_are_sorted_approved_and_sent_once(
    spark: SparkSession,
    nameserver: str,
    topic: str,
    postgres: Postgres,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay, "FIRST_DELAY_LEVEL", 1)  # a second
    database, group = postgres.database(), f"g-{datetime.now(UTC).microsecond}"
    sent = send(nameserver, topic, 5, ERROR_CLASS="ReadTimeout")
    asyncio.run(asyncio.wait_for(give_up(nameserver, group, topic, 5), 120))
    flags = ["--namesrv", nameserver, "--database", database]
    sorting = [*flags, "--checkpoint", str(tmp_path / "checkpoint"), "--json", "--once"]
    assert triage.main(sorting) == 0
    letters = ask(database, f"SELECT message_id, topic, route FROM dead_letter WHERE consumer_group = '{group}'")
    assert sorted(letters) == sorted((message_id, topic, "transient") for message_id in sent)
    assert replay.main(["--database", database, "--approve", ",".join(sent[:2]), "--by", "ann"]) == 0
    for _ in range(3):
        assert replay.main([*flags, "--send"]) == 0
    states = ask(database, f"SELECT state, count(*) FROM dead_letter WHERE consumer_group = '{group}' GROUP BY 1")
    assert dict(states) == {"sent": 2, "waiting": 3}
    deadline = time.monotonic() + 120
    while len(found := [row.msgId for row in read(spark, nameserver, topic)]) < 7 and time.monotonic() < deadline:
        threading.Event().wait(0.5)
    assert sorted(found) == sorted([*sent, *sent[:2]])


@pytest.mark.parametrize("module", ["archive", "audit", "idempotent", "replay", "resend", "restore", "triage"])
def test_every_job_explains_itself(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    job = pytest.importorskip(f"pyspark_gantrymq.jobs.{module}")
    with pytest.raises(SystemExit) as ended:
        job.main(["--help"])
    assert ended.value.code == 0
    assert f"python -m pyspark_gantrymq.jobs.{module}" in capsys.readouterr().out
