"""Jobs that send, killed at random points: nothing is forgotten, and what is there more than once was counted before.

Resend raises a stub's counter before it sends, so a stub may be there as often as its counter says, and no more often.
A replay of dead letters is one batch of a transactional sink: each letter is there once.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from testkit.jobdatabase import ask, stubs, tell
from testkit.postgres import Postgres
from testkit.sinktopic import messages, until
from testkit.sparkjob import SparkJob, work_off

if TYPE_CHECKING:
    from collections.abc import Callable

idempotent = pytest.importorskip("pyspark_gantrymq.jobs.idempotent", reason="missing pyspark; make spark-env")
triage = pytest.importorskip("pyspark_gantrymq.jobs.triage")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

ROUNDS = 20
A_ROUND = 60
QUIET_S = 1.5
PASSED = 10**9  # an offset that the consumer group has passed
STUBS = stubs("SELECT 'id-' || n, %s, 'x', '', '{}', 'b', 0, n FROM generate_series(%s::int, %s::int) n")
LETTERS = (
    "INSERT INTO dead_letter (consumer_group, message_id, replays, topic, broker, queue_id, queue_offset, "
    "message_keys, tags, body, properties, error_class, route, reconsume_times, born_at_ms, died_at_ms, state) "
    "SELECT 'packing', 'id-' || n, 0, %s, 'b', 0, n, '', '', 'x', '{}', 'ReadTimeout', 'transient', 16, 1, n, "
    "'approved' FROM generate_series(%s::int, %s::int) n"
)
STATES = "SELECT state, array_agg(message_id) FROM dead_letter GROUP BY 1"


def write(database: str, statements: tuple[str, ...], topic: str, nth: int, count: int = A_ROUND) -> None:
    with psycopg.connect(database) as connection:
        for statement in statements:
            connection.execute(statement, [topic, nth * A_ROUND + 1, nth * A_ROUND + count])


def test_every_stub_is_sent_and_no_more_often_than_its_counter_says(
    nameserver: str, topic: str, postgres: Postgres, tmp_path: Path
) -> None:
    database = postgres.database()
    idempotent.prepare(database)
    tell(database, f"INSERT INTO guarantee_log VALUES ('packing', 'later', '{topic}', 'b', 0, {PASSED}, 1)")
    flags = ["--namesrv", nameserver, "--database", database, "--group", "packing", "--every", "0.1"]
    flags += ["--backoff", "1", "--resends-max", "1000", "--rows-max", "20"]
    chance = random.Random(5)
    cut_off = 0

    def unsent(where: str = "true") -> int:
        return int(ask(database, f"SELECT count(*) FROM guarantee_delivery WHERE broker = 'b' AND {where}")[0][0])

    for nth in range(ROUNDS):
        write(database, STUBS, topic, nth)
        with SparkJob("resend", flags, tmp_path / "log") as job:
            if job.has_begun():
                threading.Event().wait(chance.random() * QUIET_S)
            job.kill()
        cut_off += unsent("resends > 0") > 0
    with SparkJob("resend", flags, tmp_path / "log") as job:
        until(lambda: unsent() == 0 or job.process.poll() is not None, "every stub is sent and has its place")
        job.kill()
    assert unsent() == 0, job.story()
    assert cut_off > 0, "no kill met a pass: nothing was shown"
    copies = Counter(message.message_id for message in messages(nameserver, topic))
    counted = dict(ask(database, "SELECT message_id, resends FROM guarantee_delivery"))
    assert set(copies) == set(counted) == {f"id-{n}" for n in range(1, ROUNDS * A_ROUND + 1)}
    assert all(copies[message_id] <= resends for message_id, resends in counted.items())
    stands = {(m.message_id, m.broker_name, m.queue_id, m.queue_offset) for m in messages(nameserver, topic)}
    assert set(ask(database, "SELECT message_id, broker, queue_id, queue_offset FROM guarantee_delivery")) <= stands


def test_every_letter_is_replayed_once(nameserver: str, topic: str, postgres: Postgres, tmp_path: Path) -> None:
    database = postgres.database()
    triage.prepare(database)
    flags = ["--namesrv", nameserver, "--database", database, "--sink", f"replay-{topic}", "--send"]
    chance = random.Random(6)
    cut_off = 0
    for nth in range(ROUNDS):
        write(database, (LETTERS,), topic, nth)
        with SparkJob("replay", flags, tmp_path / "log") as job:
            wait_until(lambda: bool(open_runs(database)) or job.process.poll() is not None)
            threading.Event().wait(chance.random() * 2 * QUIET_S)
            job.kill()
        cut_off += bool(open_runs(database))
    work_off("replay", flags, tmp_path / "log")
    assert cut_off > 0, "no kill met a run: nothing was shown"
    # All have the same delay, and those of one delay come in the order in which they were sent.
    write(database, (LETTERS,), topic, ROUNDS, 1)
    work_off("replay", flags, tmp_path / "log")
    last = f"id-{ROUNDS * A_ROUND + 1}"
    until(lambda: last in {message.message_id for message in messages(nameserver, topic)}, "the last letter is there")
    found = sorted(message.message_id for message in messages(nameserver, topic))
    assert found == sorted(f"id-{n}" for n in range(1, ROUNDS * A_ROUND + 2))
    assert ask(database, "SELECT DISTINCT state FROM dead_letter") == [("sent",)]


def test_letters_that_can_never_be_sent_cost_the_others_nothing_wherever_a_run_is_killed(
    nameserver: str, topic: str, postgres: Postgres, tmp_path: Path
) -> None:
    database = postgres.database()
    triage.prepare(database)
    flags = ["--namesrv", nameserver, "--database", database, "--sink", f"replay-{topic}", "--send"]
    chance = random.Random(7)
    rounds, cut_off, unsendable = ROUNDS // 2, 0, set()
    for nth in range(rounds):
        write(database, (LETTERS,), topic, nth)
        unsendable.add(f"id-{nth * A_ROUND + 1 + chance.randrange(A_ROUND)}")
        ids = ", ".join(f"'{each}'" for each in sorted(unsendable))
        tell(
            database,
            f"UPDATE dead_letter SET body = decode(repeat('78', 5 << 20), 'hex') WHERE message_id IN ({ids})",
        )
        with SparkJob("replay", flags, tmp_path / "log") as job:
            wait_until(lambda: bool(open_runs(database)) or job.process.poll() is not None)
            threading.Event().wait(chance.random() * 3 * QUIET_S)
            job.kill()
        cut_off += bool(open_runs(database))
    assert cut_off > 0, "no kill met a run: nothing was shown"
    with SparkJob("replay", flags, tmp_path / "log") as job:
        assert job.wait() in (0, 1), job.story()
    write(database, (LETTERS,), topic, rounds, 1)
    work_off("replay", flags, tmp_path / "log")
    last = rounds * A_ROUND + 1
    until(lambda: f"id-{last}" in {message.message_id for message in messages(nameserver, topic)}, "the last is there")
    expected = {f"id-{n}" for n in range(1, last + 1)} - unsendable
    found = [message.message_id for message in messages(nameserver, topic)]
    assert len(found) == len(set(found)) and set(found) == expected
    states = {state: set(ids) for state, ids in ask(database, STATES)}
    assert states == {"sent": expected, "waiting": unsendable}


def open_runs(database: str) -> list[tuple[int]]:
    return ask(database, "SELECT run FROM dead_letter_run WHERE NOT is_done")


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300.0
    while not holds():
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)
