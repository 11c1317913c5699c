"""What jobs are told of passwords comes out nowhere: connection strings that cannot be read are errors without them."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

idempotent = pytest.importorskip("pyspark_gantrymq.jobs.idempotent", reason="missing pyspark; make spark-env")
prefilter = pytest.importorskip("pyspark_gantrymq.jobs.prefilter")
transactions = pytest.importorskip("pyspark_gantrymq.jobs.transactions")

DATABASES = [
    "postgres//u:pw-s3cret@h/db",
    "postgresql://u:pw/s3cret@h/db",
    "postgresql://u:12/s3cret@h/db",
    "postgresql://u:p@s3cret@h/db",
    "postgresql://u:p%s3cret@h/db",
    "postgresql://u:pw@h:s3cret/db",
    "host=h password=a s3cret",
    "host=h s3cret=pw",
    "host=h password='s3cret",
]
REDIS = ["redis//:s3cret@h", "redis://:pw/s3cret@h:1/0", "redis://:s3cret#pw@h", "redis://:pw@h:s3cret/0"]


@pytest.mark.parametrize("is_file", [False, True])
@pytest.mark.parametrize("text", DATABASES)
def test_a_connection_string_that_cannot_be_read_is_not_shown(text: str, is_file: bool, tmp_path: Path) -> None:
    mounted = tmp_path / "database"
    mounted.write_text(text)
    with pytest.raises(ValueError, match="--database cannot be read") as failure:
        transactions.connect(f"@{mounted}" if is_file else text)
    assert "s3cret" not in "".join(traceback.format_exception(failure.value))


@pytest.mark.parametrize("text", REDIS)
def test_an_address_of_redis_that_cannot_be_read_is_not_shown(text: str, tmp_path: Path) -> None:
    mounted = tmp_path / "redis"
    mounted.write_text(text)
    for given in (text, f"@{mounted}"):
        with pytest.raises(ValueError, match="--redis cannot be read") as failure:
            prefilter.Prefilter(given, "revenue", 1)
        assert "s3cret" not in "".join(traceback.format_exception(failure.value))


def test_what_may_be_said_of_a_database_is_taken() -> None:
    for text in ("", "host=h,i port=1,2", "host=@/abstract", "dbname=a@b", "postgresql://u:%40@h:5432/db", "service=s"):
        transactions._check(text)


@pytest.mark.slow
def test_a_task_that_fails_says_no_password_either(spark: SparkSession) -> None:
    consumption = idempotent.Consumption(DATABASES[0], "revenue", idempotent.SqlEffect("SELECT 1"))
    given = spark.createDataFrame([("id", b"body")], "message_id string, body binary")
    with pytest.raises(Exception, match="--database cannot be read") as failure:
        idempotent.on_batch(consumption, given, 0)
    assert "s3cret" not in "".join(traceback.format_exception(failure.value))
