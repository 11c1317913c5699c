"""An effect per message, exactly once, written by executors into a real PostgreSQL: mostly the work of a task alone.

Whole jobs, killed: test_jobs_killed.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from testkit.commitproxy import cutting
from testkit.jobdatabase import ask, tell
from testkit.postgres import Postgres
from testkit.redisserver import RedisServer, running_redis
from testkit.sparksamples import FOLDER, sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

idempotent = pytest.importorskip("pyspark_gantrymq.jobs.idempotent", reason="missing pyspark; make spark-env")
transactions = pytest.importorskip("pyspark_gantrymq.jobs.transactions")

STUBS = "SELECT message_id, state FROM guarantee_delivery WHERE consumer_group = 'revenue' ORDER BY 1"
EFFECT = "INSERT INTO effects (message_id, queue_offset) VALUES (:message_id, :queue_offset)"


@pytest.fixture
def database(postgres: Postgres) -> str:
    made = postgres.database()
    idempotent.prepare(made)
    # No unique key: an effect that happens twice is to be seen.
    tell(made, "CREATE TABLE effects (number BIGSERIAL, message_id TEXT, queue_offset BIGINT)")
    return made


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    with running_redis() as server:
        yield server


def message(number: int, **more: object) -> dict[str, Any]:
    row = {"message_id": f"id-{number:04}", "topic": "Orders", "broker": "broker-a", "queue_id": 0}
    row |= {"queue_offset": number, "message_keys": "", "tags": "", "body": b"tea", "properties": "{}"}
    return {**row, "born_at_ms": 1, "received_at_ms": 2, **more}


def write_stubs(database: str, *numbers: int) -> None:
    """As the producer of these messages does, in the same database."""
    content = {"topic": "Orders", "body": b"tea", "message_keys": "", "tags": "", "properties": "{}"}
    more = {"next_resend_at_ms": 1, "now_ms": 1, "changed_by": "shop"}
    idempotent.prepare(database, "revenue", ["Orders"])
    idempotent.prepare(database, "audit", ["Orders"])
    with psycopg.connect(database) as connection:
        for number in numbers:
            for text in idempotent.SAY.stub:
                assert connection.execute(text, {"message_id": f"id-{number:04}", **content, **more}).rowcount == 2


def consume(database: str, messages: Sequence[dict[str, Any]], **more: Any) -> tuple[int, int, int]:
    consumption = idempotent.Consumption(database, "revenue", idempotent.SqlEffect(EFFECT), **more)
    (counts,) = idempotent.consume(consumption, messages)
    return counts.seen, counts.fresh, counts.known


def effects(database: str) -> list[str]:
    with psycopg.connect(database) as connection:
        return [row[0] for row in connection.execute("SELECT message_id FROM effects ORDER BY number")]


def test_a_message_that_comes_again_has_no_second_effect(database: str) -> None:
    messages = [message(number) for number in range(20)]
    assert consume(database, messages) == (20, 20, 0)
    assert consume(database, [*messages[10:], message(20), message(20, queue_offset=99)]) == (12, 1, 0)
    assert sorted(effects(database)) == [f"id-{number:04}" for number in range(21)]


def test_effects_keep_the_order_of_their_queue(database: str) -> None:
    consume(database, [message(9 - offset, queue_offset=offset) for offset in range(10)])
    assert effects(database) == [f"id-{9 - offset:04}" for offset in range(10)]


def test_an_effect_that_fails_leaves_nothing_behind(database: str) -> None:
    bad = idempotent.SqlEffect("INSERT INTO effects (message_id, queue_offset) VALUES (:message_id, 1 / :queue_id)")
    consumption = idempotent.Consumption(database, "revenue", bad)
    with pytest.raises(psycopg.errors.DivisionByZero):
        list(idempotent.consume(consumption, [message(1)]))
    assert consume(database, [message(1)]) == (1, 1, 0)


def test_messages_that_the_effect_refuses_are_kept_and_the_others_have_their_effect(database: str) -> None:
    text = "INSERT INTO effects (message_id, queue_offset) VALUES (:message_id, 7 / :queue_id)"
    keeps = idempotent.Consumption(database, "revenue", idempotent.SqlEffect(text), keeps_refused=True)
    messages = [message(number, queue_id=number % 3) for number in range(9)]
    for refused, fresh in ((3, 6), (0, 0)):
        (counts,) = idempotent.consume(keeps, messages)
        assert (counts.seen, counts.fresh, counts.refused) == (9, fresh, refused)
    assert sorted(effects(database)) == [f"id-{number:04}" for number in range(9) if number % 3]
    with psycopg.connect(database) as connection:
        kept = connection.execute("SELECT message_id, why FROM message_refused ORDER BY 1").fetchall()
    assert [row[0] for row in kept] == [f"id-{number:04}" for number in (0, 3, 6)]
    assert all("division by zero" in row[1] for row in kept)
    missing = idempotent.Consumption(database, "g", idempotent.SqlEffect("INSERT INTO nowhere VALUES (1)"), "", 1, True)
    with pytest.raises(psycopg.errors.UndefinedTable):
        list(idempotent.consume(missing, messages))


def test_a_constraint_that_is_deferred_to_the_commit_refuses_a_message_like_any_other(database: str) -> None:
    tell(
        database,
        "CREATE TABLE customers (queue_id INTEGER PRIMARY KEY)",
        "INSERT INTO customers VALUES (1)",
        "CREATE TABLE orders (message_id TEXT, queue_id INTEGER REFERENCES customers DEFERRABLE INITIALLY DEFERRED)",
    )
    text = "INSERT INTO orders VALUES (:message_id, :queue_id)"
    keeps = idempotent.Consumption(database, "revenue", idempotent.SqlEffect(text), keeps_refused=True)
    messages = [message(number, queue_id=number % 2) for number in range(4)]
    (counts,) = idempotent.consume(keeps, messages)
    assert (counts.fresh, counts.refused) == (2, 2)
    assert ask(database, "SELECT message_id FROM orders ORDER BY 1") == [("id-0001",), ("id-0003",)]
    kept = ask(database, "SELECT message_id, why FROM message_refused ORDER BY 1")
    assert [row[0] for row in kept] == ["id-0000", "id-0002"] and "foreign key" in kept[0][1]
    child_first = "INSERT INTO orders VALUES (:message_id, 100 + :queue_offset)"
    both = Both(child_first, "INSERT INTO customers VALUES (100 + :queue_offset)")
    (counts,) = idempotent.consume(idempotent.Consumption(database, "g", both, keeps_refused=True), [message(5)])
    assert (counts.fresh, counts.refused) == (1, 0), "it is deferred all the same"


class Both:
    """An effect of two statements."""

    def __init__(self, *texts: str) -> None:
        self.effects = [idempotent.SqlEffect(text) for text in texts]

    def __call__(self, cursor: Any, messages: Sequence[dict[str, Any]]) -> None:
        for effect in self.effects:
            effect(cursor, messages)


def test_the_stub_of_a_message_that_is_refused_stays_open_and_an_earlier_effect_stays_confirmed(database: str) -> None:
    text = "INSERT INTO effects (message_id, queue_offset) VALUES (:message_id, 7 / :queue_id)"
    keeps = idempotent.Consumption(database, "revenue", idempotent.SqlEffect(text), keeps_refused=True)
    write_stubs(database, 1, 2, 3)
    tell(database, "UPDATE guarantee_delivery SET state = 'confirmed' WHERE message_id = 'id-0003'")
    (counts,) = idempotent.consume(keeps, [message(number, queue_id=number % 2) for number in (1, 2)])
    assert counts.refused == 1
    (counts,) = idempotent.consume(keeps, [message(3)])  # its row of the log was deleted since
    assert (counts.fresh, counts.refused) == (0, 0)
    assert ask(database, STUBS) == [("id-0001", "confirmed"), ("id-0002", "open"), ("id-0003", "confirmed")]
    effects_of = "SELECT message_id, effect FROM guarantee_log ORDER BY 1"
    assert ask(database, effects_of) == [("id-0001", "done"), ("id-0002", "refused"), ("id-0003", "refused")]
    tell(database, "DELETE FROM message_refused", "DELETE FROM guarantee_log")
    assert consume(database, [message(2)]) == (1, 1, 0)
    assert ask(database, STUBS)[1] == ("id-0002", "confirmed")


def test_the_effect_confirms_the_stub_that_the_producer_keeps_here(database: str) -> None:
    write_stubs(database, 1, 2)
    consume(database, [message(1), message(3)])
    assert ask(database, STUBS) == [("id-0001", "confirmed"), ("id-0002", "open")]
    others = "SELECT DISTINCT state FROM guarantee_delivery WHERE consumer_group = 'audit'"
    assert ask(database, others) == [("open",)], "another group has to handle it itself"


def test_a_message_whose_stub_was_withdrawn_has_no_effect_when_it_comes(database: str) -> None:
    write_stubs(database, 1, 2)
    with psycopg.connect(database) as connection:
        for text in idempotent.SAY.void:
            connection.execute(text, {"message_id": "id-0002", "now_ms": 1, "changed_by": "ann"})
    messages = [message(number) for number in (3, 2, 1)]
    assert consume(database, messages) == (3, 2, 0)
    assert consume(database, messages) == (3, 0, 0)
    assert effects(database) == ["id-0001", "id-0003"]
    assert ask(database, STUBS) == [("id-0001", "confirmed"), ("id-0002", "void")]
    without = "SELECT message_id FROM guarantee_log WHERE effect = 'refused'"
    assert ask(database, without) == [("id-0002",)]


@pytest.mark.parametrize("what", ["after", "before"])
def test_an_effect_happens_once_when_the_answer_of_its_commit_is_lost(
    postgres: Postgres, database: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "CHUNK_ROWS", 10)
    monkeypatch.setattr(transactions, "PAUSE_S", 0.0)
    with cutting(postgres.port, lambda nth: what if nth % 2 else "") as proxy:
        through = database.replace(str(postgres.port), str(proxy.port))
        assert consume(through, [message(number) for number in range(50)])[0] == 50
    assert proxy.cuts == [what] * 5
    assert sorted(effects(database)) == [f"id-{number:04}" for number in range(50)]


def test_a_database_that_stays_away_fails_the_task(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "PAUSE_S", 0.0)
    with cutting(postgres.port, lambda nth: "before") as proxy, pytest.raises(psycopg.OperationalError):
        work = partial(lambda cursor, chunk: cursor.execute("SELECT 1"))
        list(transactions.carry_out(postgres.conninfo("postgres", proxy.port), [1], work))
    assert proxy.commits == transactions.ATTEMPTS


def test_two_writers_at_once_have_each_effect_once(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "CHUNK_ROWS", 7)  # so that their transactions overlap in all ways
    messages = [message(number) for number in range(200)]
    results: list[tuple[int, int, int]] = []

    def write(order: int) -> None:
        results.append(consume(database, messages[::order]))

    writers = [threading.Thread(target=write, args=(order,)) for order in (1, -1, 1, -1)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    assert sorted(effects(database)) == [f"id-{number:04}" for number in range(200)]
    assert [seen for seen, _, _ in results] == [200] * 4
    assert sum(fresh for _, fresh, _ in results) == 200


def test_the_tables_are_made_once_by_anyone_who_comes_first(postgres: Postgres) -> None:
    made = postgres.database()
    starters = [threading.Thread(target=idempotent.prepare, args=(made,)) for _ in range(4)]
    for starter in starters:
        starter.start()
    for starter in starters:
        starter.join(60)
    with psycopg.connect(made) as connection:
        assert connection.execute("SELECT version FROM message_guarantee").fetchall() == [(2,)]


@pytest.mark.parametrize("what", ["after", "before"])
def test_the_tables_are_made_though_the_answer_to_their_commit_is_lost(
    what: str, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "PAUSE_S", 0.0)
    made = postgres.database()
    with cutting(postgres.port, lambda nth: what if nth == 1 else "") as proxy:
        idempotent.prepare(postgres.conninfo(made.rpartition("/")[2], proxy.port))
    assert proxy.cuts == [what]
    assert ask(made, "SELECT version FROM message_guarantee") == [(2,)]


def test_redis_keeps_what_is_done_from_the_database(
    database: str, redis_server: RedisServer, tmp_path: Path
) -> None:
    mounted = tmp_path / "redis"
    mounted.write_text(f"{redis_server.url}\n")
    messages = [message(number) for number in range(30)]
    assert consume(database, messages[:20], redis=redis_server.url) == (20, 20, 0)
    assert consume(database, messages, redis=f"@{mounted}") == (30, 10, 20)
    assert len(effects(database)) == 30


def test_a_refused_message_that_is_sent_again_is_not_kept_from_the_database_by_redis(
    database: str, redis_server: RedisServer
) -> None:
    text = "INSERT INTO effects (message_id, queue_offset) VALUES (:message_id, 7 / :queue_id)"
    effect = idempotent.SqlEffect(text)
    keeps = idempotent.Consumption(database, "revenue", effect, redis_server.url, keeps_refused=True)
    messages = [message(1), message(2, queue_id=1)]
    for refused, known in ((1, 0), (0, 1)):
        (counts,) = idempotent.consume(keeps, messages)
        assert (counts.refused, counts.known) == (refused, known)
    tell(database, "DELETE FROM message_refused", "DELETE FROM guarantee_log WHERE message_id = 'id-0001'")
    (counts,) = idempotent.consume(keeps, [message(1, queue_id=1)])
    assert (counts.fresh, effects(database)) == (1, ["id-0002", "id-0001"])


def test_a_worker_that_died_with_its_mark_in_redis_holds_nobody_up(database: str, redis_server: RedisServer) -> None:
    dead = idempotent.Prefilter(redis_server.url, "revenue", 3600)
    with psycopg.connect(database) as connection, connection.cursor() as cursor:
        dead.claim(idempotent.identity(cursor), ["id-0001"])
    dead.close()
    assert consume(database, [message(1)], redis=redis_server.url) == (1, 1, 0)


def test_a_database_that_lost_its_log_is_not_judged_by_redis(database: str, redis_server: RedisServer) -> None:
    consume(database, [message(1)], redis=redis_server.url)
    with psycopg.connect(database) as connection:
        connection.execute("TRUNCATE guarantee_log, effects")
    assert consume(database, [message(1)], redis=redis_server.url) == (1, 1, 0)
    assert effects(database) == ["id-0001"]


def test_without_redis_the_database_does_it_alone(database: str) -> None:
    with running_redis() as gone:
        gone.kill()
        assert consume(database, [message(1), message(2)], redis=gone.url) == (2, 2, 0)
        assert consume(database, [message(1), message(2)], redis=gone.url) == (2, 0, 0)


def test_marks_in_redis_expire(database: str, redis_server: RedisServer) -> None:
    consume(database, [message(1)], redis=redis_server.url, redis_expiry_s=1234)
    with idempotent.Prefilter(redis_server.url, "revenue", 1)._redis as client:
        expiries = [client.ttl(key) for key in client.scan_iter("gantrymq:*")]
    assert expiries and all(0 < expiry <= 3600 for expiry in expiries)


def test_a_database_that_goes_without_a_word_is_noticed_as_fast_as_the_connection_string_says(database: str) -> None:
    with transactions.connect(f"{database}?keepalives_idle=7") as connection:
        found = connection.info.get_parameters()
    assert (found["keepalives_idle"], found["tcp_user_timeout"]) == ("7", "60000")


def test_a_connection_string_may_stand_in_a_file(database: str, tmp_path: Any) -> None:
    secret = tmp_path / "database"
    secret.write_text(database + "\n")
    assert consume(f"@{secret}", [message(1)]) == (1, 1, 0)


def test_the_sample_orders_have_the_effect_that_the_document_shows(spark: SparkSession, database: str) -> None:
    text = (FOLDER / "revenue.sql").read_text(encoding="utf-8")
    tell(database, "CREATE TABLE revenue (payment TEXT PRIMARY KEY, orders BIGINT NOT NULL, amount NUMERIC NOT NULL)")
    consumption = idempotent.Consumption(database, "revenue", idempotent.SqlEffect(text.strip().removesuffix(";")))
    orders = idempotent.build(sample(spark, "orders"))
    assert idempotent.on_batch(consumption, orders, 0) == {"batch": 0, "seen": 9, "fresh": 8, "known": 0, "refused": 0}
    assert idempotent.on_batch(consumption, orders, 0) == {"batch": 0, "seen": 9, "fresh": 0, "known": 0, "refused": 0}
    found = ask(database, "SELECT payment, orders, amount::text FROM revenue ORDER BY 1")
    assert found == [("card", 4, "53.75"), ("cash", 4, "16.30")]
