"""Rows that are delivered later, at a real broker: not there when the write returns, and there when it is time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from gantry.client.admin import Admin
from testkit.sinktopic import messages, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from gantry.client.requests.delay_requests import DelayedInfo

pytestmark = pytest.mark.spark

LEVELS_S = {1: 1, 2: 5}
SOON_S, LATE_S = 3, 3600


def write(spark: SparkSession, nameserver: str, topic: str, column: str, rows: list[Any], **options: str) -> None:
    df = spark.createDataFrame(rows, f"body binary, {column}")
    given = {"gantrymq.namesrv": nameserver, "topic": topic} | options
    df.write.format("gantrymq").mode("append").options(**given).save()


def waiting(nameserver: str, topic: str) -> dict[str, DelayedInfo]:
    """What the broker keeps back of a topic, by its keys."""

    async def ask() -> list[DelayedInfo]:
        async with Admin(nameserver=nameserver) as admin:
            return await admin.delayed(topic=topic)

    return {one.keys: one for one in asyncio.run(ask())}


@pytest.mark.parametrize("mode", ["at-least-once", "transactional"])
def test_a_row_with_an_instant_is_delivered_then_and_one_without_at_once(
    spark: SparkSession, nameserver: str, topic: str, mode: str
) -> None:
    now = datetime.now(UTC)
    soon, late = now + timedelta(seconds=SOON_S), now + timedelta(seconds=LATE_S)
    rows = [(b"now", "now", None), (b"soon", "soon", soon), (b"late", "late", late)]
    write(spark, nameserver, topic, "keys string, deliverTimestamp timestamp", rows, mode=mode)
    until(lambda: {m.body for m in messages(nameserver, topic)} >= {b"now", b"soon"}, "two of them are delivered")
    found = {message.body: message for message in messages(nameserver, topic)}
    assert set(found) == {b"now", b"soon"}
    assert found[b"soon"].store_ms >= int(soon.timestamp() * 1000)
    left = waiting(nameserver, topic)
    assert set(left) == {"late"} and left["late"].due_ms == round(late.timestamp() * 1000)


def test_a_row_with_a_level_waits_as_long_as_the_level_says(spark: SparkSession, nameserver: str, topic: str) -> None:
    rows = [(b"0", "at once", None), *((b"%d" % level, "later", level) for level in LEVELS_S), (b"18", "last", 18)]
    write(spark, nameserver, topic, "keys string, delayTimeLevel int", rows)
    until(lambda: len(messages(nameserver, topic)) >= 1 + len(LEVELS_S), "the low levels are delivered")
    found = {int(message.body): message for message in messages(nameserver, topic)}
    assert set(found) == {0, *LEVELS_S}
    for level, delay_s in LEVELS_S.items():
        assert found[level].store_ms - found[level].born_ms >= delay_s * 1000
    left = waiting(nameserver, topic)
    assert [(one.keys, one.level) for one in left.values()] == [("last", 18)]
