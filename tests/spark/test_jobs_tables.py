"""Jobs over tables of a real PostgreSQL and the sample data; what they would send is collected instead of sent."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from testkit.jobdatabase import ask, stubs, tell
from testkit.postgres import Postgres
from testkit.sparksamples import FOLDER, sample

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

functions = pytest.importorskip("pyspark.sql.functions", reason="missing pyspark; make spark-env")
idempotent = pytest.importorskip("pyspark_gantrymq.jobs.idempotent")
letters = pytest.importorskip("pyspark_gantrymq.jobs.letters")
places = pytest.importorskip("pyspark_gantrymq.jobs.places")
replay = pytest.importorskip("pyspark_gantrymq.jobs.replay")
resend = pytest.importorskip("pyspark_gantrymq.jobs.resend")
runs = pytest.importorskip("pyspark_gantrymq.jobs.runs")
transactions = pytest.importorskip("pyspark_gantrymq.jobs.transactions")
triage = pytest.importorskip("pyspark_gantrymq.jobs.triage")

ID = "7F00000100002A139A56{:012X}"
NOON = "2026-11-22T12:00:00Z"
STUB = (
    "SELECT resends, next_resend_at_ms, broker, queue_id, queue_offset FROM guarantee_delivery WHERE message_id = %s"
)
STATES = "SELECT right(message_id, 1), state FROM dead_letter ORDER BY 1"


class Sent:
    """Instead of the sink; what is sent comes to stand at the end of broker-b's queue 3."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.batches: list[int] = []
        self.portions: list[int] = []
        self.unsendable: set[str] = set()

    def run(self, messages: DataFrame, batch: int, began_ms: int) -> Any:
        """As one batch; the letters of ids in `unsendable` are refused, and with them the batch."""
        self.batches.append(batch)
        found = messages.collect()
        refused = [places.Refusal(row.msgId, row.topic, "too large") for row in found if row.msgId in self.unsendable]
        self.rows += [] if refused else found
        return runs.Sent(not refused, tuple(refused))

    def __call__(self, messages: DataFrame) -> list[Any]:
        found = messages.collect()
        self.portions.append(len(found))
        self.rows += found
        first = len(self.rows) - len(found)
        return [places.MessageLocation(row.msgId, "broker-b", 3, first + nth) for nth, row in enumerate(found)]


@pytest.fixture
def database(postgres: Postgres) -> str:
    made = postgres.database()
    idempotent.prepare(made)
    triage.prepare(made)
    return made


def sorted_out(spark: SparkSession, database: str, approve: bool = False, archive: str = "") -> None:
    noon = functions.to_timestamp(functions.lit(NOON))
    dead = triage.build(sample(spark, "dead-letters"), triage.TriageRules(is_json=True), noon)
    triage.on_batch(database, approve, archive, dead, 7)


def test_resend_finds_exactly_what_is_missing_and_sends_it_under_its_own_id(spark: SparkSession, database: str) -> None:
    tell(database, (FOLDER / "stubs.sql").read_text(encoding="utf-8"))
    sent, rules = Sent(), resend.ResendPolicy("packing", backoff_ms=60_000, backlog_ms=5_000)
    counts = resend.one_pass(spark, database, rules, 2_000, sent)
    assert counts == {"sent": 2, "refused": 0, "exhausted": 1, "stuck": 0, "overdue": 0}
    row, unplaced = sorted(sent.rows, key=lambda row: row.msgId)
    assert (unplaced.msgId, bytes(unplaced.body)) == ("unplaced", b'{"order": 7}'), "perhaps it was never sent"
    assert (row.topic, bytes(row.body), row.keys, row.tags) == ("Orders", b'{"order": 1}', "2026-0201", "")
    assert (row.properties, row.msgId) == ({"shop": "north"}, "lost")
    assert ask(database, STUB, ["lost"]) == [(1, 2_000 + 5_000 + 60_000, "broker-b", 3, 0)]
    tell(database, "INSERT INTO guarantee_log VALUES ('packing', 'old', 'Orders', 'broker-a', 0, 5, 1)")
    keeps = resend.ResendPolicy("packing", log_kept_ms=1_000)
    assert resend.one_pass(spark, database, keeps, 60_000, sent)["forgotten"] == 1
    assert ask(database, "SELECT message_id FROM guarantee_log ORDER BY 1") == [("another",), ("arrived",)]
    assert resend.one_pass(spark, database, rules, 3_000, sent)["sent"] == 0


def test_a_long_log_is_pruned_in_short_transactions_and_a_pass_ends(
    spark: SparkSession, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resend, "FORGETS_MAX", 2)
    rows = "SELECT 'packing', n, 'Orders', 'broker-a', 0, n, 1 FROM generate_series(1, 25000) n"
    tell(database, f"INSERT INTO guarantee_log {rows}")
    keeps = resend.ResendPolicy("packing", log_kept_ms=1_000)
    passes = [resend.one_pass(spark, database, keeps, 60_000, Sent())["forgotten"] for _ in range(3)]
    assert passes == [20_000, 4_999, 0], "the last row of a queue stays"


def test_who_looks_for_stubs_for_a_person_is_not_sent_their_bodies(database: str) -> None:
    tell(database, (FOLDER / "stubs.sql").read_text(encoding="utf-8"))

    def look(cursor: Any, _: None) -> tuple[dict[str, list[str]], list[str]]:
        found = resend.for_a_person(resend.ResendPolicy("packing"), 2_000, cursor)
        return found, [column.name for column in cursor.description]

    ((found, columns),) = transactions.carry_out(database, [None], look)
    assert found == {"exhausted": ["exhausted"], "stuck": [], "overdue": []}
    assert "message_id" in columns and "body" not in columns


def test_what_waits_in_a_backlog_since_it_was_sent_again_is_not_sent_a_third_time(
    spark: SparkSession, database: str
) -> None:
    tell(database, (FOLDER / "stubs.sql").read_text(encoding="utf-8"))
    tell(database, "DELETE FROM guarantee_delivery WHERE message_id = 'unplaced'")
    sent, rules = Sent(), resend.ResendPolicy("packing", backoff_ms=1_000)
    assert resend.one_pass(spark, database, rules, 2_000, sent)["sent"] == 1
    assert resend.one_pass(spark, database, rules, 9_000, sent)["sent"] == 0
    tell(database, "INSERT INTO guarantee_log VALUES ('packing', 'behind it', 'Orders', 'broker-b', 3, 1, 9000)")
    assert resend.one_pass(spark, database, rules, 9_000, sent)["sent"] == 1
    assert ask(database, STUB, ["lost"]) == [(2, 9_000 + 2_000, "broker-b", 3, 1)]


def test_a_place_that_is_noted_late_does_not_replace_a_later_one(database: str) -> None:
    tell(database, (FOLDER / "stubs.sql").read_text(encoding="utf-8"))
    tell(database, "DELETE FROM guarantee_delivery WHERE message_id = 'unplaced'")
    rules = resend.ResendPolicy("packing", backoff_ms=0)

    def each(work: Any) -> Any:
        (found,) = transactions.carry_out(database, [()], lambda cursor, _: work(cursor))
        return found

    first = each(lambda cursor: resend.claim(rules, 2_000, cursor))
    second = each(lambda cursor: resend.claim(rules, 3_000, cursor))
    assert [row["message_id"] for row in first] == [row["message_id"] for row in second] == ["lost"]
    later, earlier = (places.MessageLocation("lost", "broker-b", 0, offset) for offset in (8, 7))
    assert each(lambda cursor: resend.note(second, [later], cursor)) == 1
    assert each(lambda cursor: resend.note(first, [earlier], cursor)) == 0
    assert each(lambda cursor: resend.note(first, [], cursor)) == 0
    assert ask(database, STUB, ["lost"])[0][2:] == ("broker-b", 0, 8)


def test_a_stub_that_was_withdrawn_is_sent_no_more(spark: SparkSession, database: str) -> None:
    tell(database, (FOLDER / "stubs.sql").read_text(encoding="utf-8"))
    assert resend.withdraw(database, ["lost", "lost", "exhausted", "confirmed", "unheard of"], "ann") == 2
    who = "SELECT message_id, status FROM guarantee_stub WHERE changed_by = 'ann' ORDER BY 1"
    assert ask(database, who) == [("exhausted", "void"), ("lost", "void")]
    sent = Sent()
    counts = resend.one_pass(spark, database, resend.ResendPolicy("packing"), 2_000, sent)
    assert counts == {"sent": 1, "refused": 0, "exhausted": 0, "stuck": 0, "overdue": 0}
    assert [row.msgId for row in sent.rows] == ["unplaced"]


def test_of_100_missing_stubs_among_2000_exactly_those_are_sent_in_portions_of_bounded_bytes(
    spark: SparkSession, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resend, "BYTES_MAX", 40 * len('x{"p": "12345"}k'))
    tell(
        database,
        *stubs(
            "SELECT 'id-' || n, 'Orders', 'x', 'k', '{\"p\": \"12345\"}', 'broker-a', n % 4, n"
            " FROM generate_series(1, 2000) n"
        ),
        "INSERT INTO guarantee_log SELECT 'packing', 'id-' || n, 'Orders', 'broker-a', n % 4, n, 1 "
        "FROM generate_series(1, 2000) n WHERE n % 20 != 7",
    )
    sent = Sent()
    assert resend.one_pass(spark, database, resend.ResendPolicy("packing"), 2, sent)["sent"] == 100
    assert {row.msgId for row in sent.rows} == {f"id-{n}" for n in range(7, 2000, 20)}
    assert sent.portions == [40, 40, 20]
    (left,) = transactions.carry_out(
        database,
        ["SELECT 'xx' FROM generate_series(1, 9)"],
        lambda cursor, text: transactions.first_of(cursor, text, {}, 1, lambda row: len(row[0])),
    )
    assert left == [("xx",)], "one that is larger goes by itself"


def test_without_a_backoff_a_stub_that_is_refused_is_tried_once_in_a_pass(spark: SparkSession, database: str) -> None:
    tell(database, (FOLDER / "stubs.sql").read_text(encoding="utf-8"))

    def refuse(messages: DataFrame) -> list[Any]:
        return [places.Refusal(row.msgId, row.topic, "too large") for row in messages.collect()]

    counts = resend.one_pass(spark, database, resend.ResendPolicy("packing", backoff_ms=0), 2_000, refuse)
    assert (counts["sent"], counts["refused"]) == (0, 2)


def test_a_resend_that_died_before_it_sent_leaves_the_stub_due_again(spark: SparkSession, database: str) -> None:
    tell(database, (FOLDER / "stubs.sql").read_text(encoding="utf-8"))
    rules = resend.ResendPolicy("packing", backoff_ms=1_000)

    def die(_: DataFrame) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resend.one_pass(spark, database, rules, 2_000, die)
    sent = Sent()
    assert resend.one_pass(spark, database, rules, 2_999, sent)["sent"] == 0
    assert resend.one_pass(spark, database, rules, 3_000, sent)["sent"] == 2


def test_backoff_doubles_up_to_a_limit() -> None:
    rules = resend.ResendPolicy("packing", backoff_ms=1_000)
    assert [rules.next_ms(0, resends) for resends in (1, 2, 3, 50)] == [1_000, 2_000, 4_000, 1_024_000]


def test_triage_sorts_letters_and_counts_each_death_once(spark: SparkSession, database: str, tmp_path: Any) -> None:
    for _ in range(2):  # a batch that is repeated changes nothing
        sorted_out(spark, database, archive=str(tmp_path / "expired"))
    routes = ask(database, "SELECT right(message_id, 1), route, error_class FROM dead_letter ORDER BY 1")
    assert routes == [
        ("1", "transient", "ReadTimeout"),
        ("2", "transient", "ReadTimeout"),
        ("3", "poison", "ReadTimeout"),
        ("4", "poison", "malformed body"),
        ("5", "poison", "OutOfStock"),
        ("6", "expired", "ConnectionError"),
        ("7", "poison", "unknown"),
    ]
    counts = dict(ask(database, "SELECT error_class, sum(letters)::int FROM dead_letter_count GROUP BY 1"))
    assert counts == {"ConnectionError": 1, "malformed body": 1, "OutOfStock": 1, "ReadTimeout": 3, "unknown": 1}
    kept = spark.read.parquet(str(tmp_path / "expired")).collect()
    assert [(row.message_id, bytes(row.body)) for row in kept] == [
        (ID.format(6), b'{"order": "2026-106", "amount": "9.90"}')
    ]


def test_expired_letters_of_a_new_checkpoint_leave_those_of_the_old_one_where_they_are(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    later = functions.to_timestamp(functions.lit("2030-01-01T00:00:00Z"))  # all of them have expired
    dead = triage.build(sample(spark, "dead-letters"), triage.TriageRules(is_json=True), later)
    archive = tmp_path / "expired"
    for nth, each in enumerate((dead.limit(3), dead.limit(2))):
        (tmp_path / f"{nth}").mkdir()
        (tmp_path / f"{nth}/metadata").write_text(f'{{"id":"query-{nth}"}}')
        given = Namespace(
            database=database, approve_transient=False, archive=str(archive), checkpoint=str(tmp_path / f"{nth}")
        )
        triage._told(given, each, 0)
    assert spark.read.parquet(str(archive)).count() == 3 + 2


MALFORMED: dict[str, dict[str, Any]] = {
    "a body that is not UTF-8": {"body": b"\xff\xfe\x00{"},
    "a NUL in keys and tags": {"keys": "a\0b", "tags": "\0"},
    "a NUL in properties": {"properties": {"UNIQ_KEY": "i\0d", "ERROR_CLASS": "e\0", "RETRY_TOPIC": "t\0"}},
    "texts that no index holds": {"properties": {"UNIQ_KEY": "k" * 9000, "ERROR_CLASS": "e" * 9000}},
    "counts that are none": {"properties": {"DLQ_REPLAYS": "2147483647", "GANTRY_REPLAYS": "-1"}},
}


def test_a_malformed_letter_is_kept_and_stops_neither_triage_nor_the_letters_beside_it(
    spark: SparkSession, database: str
) -> None:
    whole = sample(spark, "dead-letters")
    good, *_ = whole.limit(1).collect()
    given = [
        {**good.asDict(), **changed, "properties": {"UNIQ_KEY": f"bad-{at}", **changed.get("properties", {})}}
        for at, changed in enumerate(MALFORMED.values())
    ]
    dead = whole.limit(1).unionByName(spark.createDataFrame(given, whole.schema))
    counts = triage.on_batch(database, False, "", triage.build(dead, triage.TriageRules(is_json=True)), 7)
    assert counts["fresh"] == 1 + len(MALFORMED)
    kept = ask(database, "SELECT body, message_keys, tags, replays, length(message_id) FROM dead_letter")
    assert {bytes(row[0]) for row in kept} >= {b"\xff\xfe\x00{"}
    assert "a\ufffdb" in {row[1] for row in kept} and max(row[4] for row in kept) == 64


def test_a_malformed_message_can_be_logged_by_the_idempotent_job(spark: SparkSession, database: str) -> None:
    whole = sample(spark, "orders")
    (good,) = whole.limit(1).collect()
    changes = ({"msgId": "a\0b"}, {"msgId": "k" * 9000}, {"keys": "\0", "tags": "x\0", "body": b"\xff"})
    bad = spark.createDataFrame([good.asDict() | each for each in changes], whole.schema)
    nothing = idempotent.Consumption(database, "g", idempotent.SqlEffect("SELECT :message_keys, :tags"))
    assert idempotent.on_batch(nothing, idempotent.build(bad), 0)["fresh"] == 3
    assert [row[0] for row in ask(database, "SELECT count(*) FROM guarantee_log")] == [3]


def test_nothing_is_replayed_that_nobody_approved(spark: SparkSession, database: str) -> None:
    sorted_out(spark, database)
    sent = Sent()
    assert replay.one_run(spark, database, 1, sent.run)["sent"] == 0
    assert not sent.rows


def test_an_approved_letter_is_sent_once_under_its_own_id(spark: SparkSession, database: str) -> None:
    sorted_out(spark, database)
    assert replay.approve(database, [ID.format(1), ID.format(1), ID.format(3), "unheard of"], "ann") == 1
    sent = Sent()
    assert [replay.one_run(spark, database, 1, sent.run)["sent"] for _ in range(3)] == [1, 0, 0]
    (row,) = sent.rows
    assert (row.topic, row.delayTimeLevel, row.keys) == ("Orders", 3, "2026-101")
    assert (row.properties, row.msgId) == ({"DLQ_REPLAYS": "1"}, ID.format(1))
    sorted_out(spark, database)  # the same deaths again, as a batch that is repeated
    assert replay.approve(database, [ID.format(1)], "ann") == 0
    assert dict(ask(database, STATES))["1"] == "sent"


def test_letters_that_are_too_large_for_one_run_go_with_the_next_one_at_once(
    spark: SparkSession, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "BYTES_MAX", 5_000)
    sorted_out(spark, database, approve=True)
    tell(database, "UPDATE dead_letter SET properties = '{\"p\": \"' || repeat('x', 6000) || '\"}'")
    sent = Sent()
    assert replay.one_run(spark, database, 1, sent.run) == {"run": 2, "sent": 2, "repeated": 0, "refused": 0}
    assert (sent.batches, len(sent.rows)) == ([1, 2], 2)


def test_a_run_that_was_broken_off_is_repeated_as_the_same_batch(spark: SparkSession, database: str) -> None:
    sorted_out(spark, database, approve=True)
    tried, sent = Sent(), Sent()

    def die(messages: DataFrame, batch: int, began_ms: int) -> None:
        tried.run(messages, batch, began_ms)
        raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            replay.one_run(spark, database, 1, die)
    assert replay.one_run(spark, database, 1, sent.run) == {"run": 2, "sent": 0, "repeated": 2, "refused": 0}
    assert replay.one_run(spark, database, 1, sent.run) == {"run": 3, "sent": 0, "repeated": 0, "refused": 0}
    assert tried.batches == [1, 1] and sent.batches == [1]
    assert tried.rows == [*sent.rows, *sent.rows]
    assert {row.msgId for row in sent.rows} == {ID.format(1), ID.format(2)}


def test_a_message_that_died_after_three_replays_is_not_sent_a_fourth_time(spark: SparkSession, database: str) -> None:
    sorted_out(spark, database)
    assert replay.approve(database, [ID.format(3)], "ann") == 0
    tell(database, "UPDATE dead_letter SET state = 'approved' WHERE replays >= 3")  # anyone who does it by hand
    sent = Sent()
    assert replay.one_run(spark, database, 1, sent.run)["sent"] == 0


def test_a_letter_that_cannot_be_sent_waits_for_a_person_and_the_others_go(
    spark: SparkSession, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sorted_out(spark, database, approve=True)
    sent = Sent()
    sent.unsendable.add(ID.format(2))
    assert replay.one_run(spark, database, 1, sent.run) == {"run": 2, "sent": 1, "repeated": 0, "refused": 1}
    assert {row.msgId for row in sent.rows} == {ID.format(1)}
    assert f"letter {ID.format(2)} for topic 'Orders' is refused: too large" in capsys.readouterr().err
    states = dict(ask(database, STATES))
    assert (states["1"], states["2"]) == ("sent", "waiting")
    assert ask(database, "SELECT message_id, refused FROM dead_letter WHERE refused IS NOT NULL") == [
        (ID.format(2), "too large")
    ]
    assert replay.one_run(spark, database, 1, sent.run) == {"run": 3, "sent": 0, "repeated": 0, "refused": 0}
    sent.unsendable.clear()
    assert replay.approve(database, [ID.format(2)], "ann") == 1
    assert replay.one_run(spark, database, 1, sent.run)["sent"] == 1
    assert sorted(row.msgId for row in sent.rows) == [ID.format(1), ID.format(2)]


def test_letters_of_a_run_that_failed_and_is_closed_may_be_rejected(spark: SparkSession, database: str) -> None:
    sorted_out(spark, database, approve=True)

    def fail(messages: DataFrame, batch: int, began_ms: int) -> Any:
        return runs.Sent(False, error=ValueError("no queue may be written to"))

    with pytest.raises(ValueError, match="may be written to"):
        replay.one_run(spark, database, 1, fail)
    assert replay.approve(database, [ID.format(1)], "ann", letters.REJECT) == 1
    sent = Sent()
    assert replay.one_run(spark, database, 1, sent.run) == {"run": 2, "sent": 1, "repeated": 0, "refused": 0}
    assert {row.msgId for row in sent.rows} == {ID.format(2)}


def test_a_message_that_died_in_two_groups_is_sent_once(spark: SparkSession, database: str) -> None:
    sorted_out(spark, database)
    columns = letters.LETTER_COLUMNS
    of_audit = columns.replace("consumer_group", "'audit'")
    letter = f"SELECT {of_audit} FROM dead_letter WHERE message_id = '{ID.format(1)}'"
    tell(database, f"INSERT INTO dead_letter ({columns}) {letter}")
    assert replay.approve(database, [ID.format(1)], "ann") == 2
    sent = Sent()
    assert replay.one_run(spark, database, 1, sent.run)["sent"] == 1
    assert ask(database, "SELECT count(*) FROM dead_letter WHERE state = 'sent'") == [(2,)]
