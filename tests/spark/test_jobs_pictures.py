"""The pictures in spark/docs/jobs.md are what the jobs make of spark/samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testkit.sources import ROOT
from testkit.sparksamples import picture, sample

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

archive = pytest.importorskip("pyspark_gantrymq.jobs.archive", reason="missing pyspark; make spark-env")
audit = pytest.importorskip("pyspark_gantrymq.jobs.audit")
idempotent = pytest.importorskip("pyspark_gantrymq.jobs.idempotent")

DOCUMENT = ROOT / "spark/docs/jobs.md"


def is_shown(table: DataFrame) -> bool:
    shown = picture(table)
    print(shown)  # for whoever brings the document in step
    return f"```\n{shown}```" in DOCUMENT.read_text(encoding="utf-8")


def test_what_an_effect_is_given(spark: SparkSession) -> None:
    given = idempotent.build(sample(spark, "orders"))
    assert is_shown(given.select("message_id", "queue_id", "queue_offset", "message_keys", "tags", "received_at_ms"))


def test_what_the_audit_says_of_an_archive_with_a_gap_and_a_repetition(spark: SparkSession) -> None:
    archived = archive.build(sample(spark, "orders"))
    lacking = archived.where("NOT (queueId = 1 AND queueOffset = 2)")
    assert is_shown(audit.build(lacking.union(archived.where("queueId = 0 AND queueOffset = 3"))))
