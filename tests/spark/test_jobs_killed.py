"""Whole jobs against a real broker and a real PostgreSQL: drivers get SIGKILL at random points, COMMITs lose answers.

Twenty rounds of kills: every round sends messages, lets a job begin on its
checkpoint, and kills driver and JVM some time after its first batch.  At the end a last run works off the rest.
"""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from testkit.commitproxy import cutting
from testkit.jobdatabase import ask, tell
from testkit.postgres import Postgres
from testkit.sparkjob import SparkJob, work_off
from testkit.sparkstream import send_numbers

EFFECT = "INSERT INTO effects (message_id, body) VALUES (:message_id, :body)"
A_ROUND = 300
QUIET_S = 2.0


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rounds", [20])
def test_a_job_killed_at_random_points_has_every_effect_once(
    rounds: int, nameserver: str, topic: str, postgres: Postgres, tmp_path: Path
) -> None:
    database = postgres.database()
    tell(database, "CREATE TABLE effects (number BIGSERIAL, message_id TEXT, body BYTEA)")
    effect = tmp_path / "effect.sql"
    effect.write_text(EFFECT)
    chance = random.Random(rounds)
    flags = ["--namesrv", nameserver, "--subscribe", topic, "--database", database, "--group", "revenue"]
    flags += ["--effect", str(effect), "--checkpoint", str(tmp_path / "checkpoint"), "--every", "0 seconds"]
    sent: dict[str, bytes] = {}
    kills = 0
    for nth in range(rounds):
        sent |= send_numbers(nameserver, topic, range(nth * A_ROUND, nth * A_ROUND + A_ROUND))
        with SparkJob("idempotent", [*flags, "--option", "maxOffsetsPerTrigger=60"], tmp_path / "log") as job:
            if job.has_begun():
                kills += 1
                threading.Event().wait(chance.random() * QUIET_S)
            job.kill()
    work_off("idempotent", [*flags, "--once"], tmp_path / "log")
    assert kills > rounds // 2
    found = ask(database, "SELECT message_id, body FROM effects ORDER BY number")
    assert len(found) == len(sent)
    assert {message_id: bytes(body) for message_id, body in found} == sent


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_jobs_at_once_have_every_effect_once_though_answers_to_their_commits_are_lost(
    nameserver: str, topic: str, postgres: Postgres, tmp_path: Path
) -> None:
    database = postgres.database()
    tell(database, "CREATE TABLE effects (number BIGSERIAL, message_id TEXT, body BYTEA)")
    effect = tmp_path / "effect.sql"
    effect.write_text(EFFECT)
    sent = send_numbers(nameserver, topic, range(600))
    chance, lock = random.Random(7), threading.Lock()

    def lose(_: int) -> str:
        with lock:
            return chance.choice(("after", "before", "", "", ""))

    with cutting(postgres.port, lose) as proxy:
        through = database.replace(f":{postgres.port}/", f":{proxy.port}/")
        flags = ["--namesrv", nameserver, "--subscribe", topic, "--database", through, "--group", "revenue", "--once"]
        flags += ["--effect", str(effect), "--option", "maxOffsetsPerTrigger=40"]

        def consume(name: str) -> None:
            work_off("idempotent", [*flags, "--checkpoint", str(tmp_path / name)], tmp_path / f"{name}.log")

        with ThreadPoolExecutor(2) as both:
            list(both.map(consume, ("north", "south")))
    assert {"after", "before"} <= set(proxy.cuts) and len(proxy.cuts) > 5
    found = ask(database, "SELECT message_id, body FROM effects ORDER BY number")
    assert len(found) == len(sent)
    assert {message_id: bytes(body) for message_id, body in found} == sent
