"""The pictures in spark/docs/jobs.md are what the jobs make of spark/samples."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from testkit.sources import ROOT
from testkit.sparksamples import picture, sample

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

functions = pytest.importorskip("pyspark.sql.functions", reason="missing pyspark; make spark-env")
archive = pytest.importorskip("pyspark_gantrymq.jobs.archive")
audit = pytest.importorskip("pyspark_gantrymq.jobs.audit")
idempotent = pytest.importorskip("pyspark_gantrymq.jobs.idempotent")
replay = pytest.importorskip("pyspark_gantrymq.jobs.replay")
restore = pytest.importorskip("pyspark_gantrymq.jobs.restore")
triage = pytest.importorskip("pyspark_gantrymq.jobs.triage")

DOCUMENT = ROOT / "spark/docs/jobs.md"


def is_shown(table: DataFrame) -> bool:
    shown = picture(table)
    print(shown)  # for anyone who brings the document in step
    return f"```\n{shown}```" in DOCUMENT.read_text(encoding="utf-8")


def test_what_an_effect_is_given(spark: SparkSession) -> None:
    given = idempotent.build(sample(spark, "orders"))
    assert is_shown(given.select("message_id", "queue_id", "queue_offset", "message_keys", "tags", "received_at_ms"))


def test_what_the_audit_says_of_an_archive_with_a_gap_and_a_repetition(spark: SparkSession) -> None:
    archived = archive.build(sample(spark, "orders"))
    lacking = archived.where("NOT (queueId = 1 AND queueOffset = 2)")
    assert is_shown(audit.build(lacking.union(archived.where("queueId = 0 AND queueOffset = 3"))))


def test_what_restore_sends(spark: SparkSession) -> None:
    archived = archive.build(sample(spark, "orders"))
    chosen = restore.chosen(archived, "Orders", "2026-11-22T09:02:00Z", "2026-11-22T09:05:00Z", [])
    assert is_shown(restore.build(chosen, "Orders-again").select("topic", "keys", "tags", "properties", "msgId"))


def test_how_dead_letters_are_sorted_and_what_is_replayed(spark: SparkSession) -> None:
    noon = functions.to_timestamp(functions.lit("2026-11-22T12:00:00Z"))
    sorted_out = triage.build(sample(spark, "dead-letters"), triage.TriageRules(is_json=True), noon)
    assert is_shown(sorted_out.select("consumer_group", "message_keys", "topic", "replays", "error_class", "route"))
    approved = sorted_out.where("route = 'transient'").select(*re.findall(r"(\w+) \w+", replay.LETTERS))
    assert is_shown(replay.build(approved).select("topic", "keys", "delayTimeLevel", "properties", "msgId"))
