"""Streams of the data source into Parquet, run to their end, and what a producer sends before them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from gantry.client.admin import Admin
from gantry.client.blocking import BlockingProducer
from gantry.model.message import Message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WAIT_S = 120.0  # for other processes on a busy machine


def send(nameserver: str, topic: str, count: int) -> list[str]:
    """The ids of so many messages, which were acknowledged."""
    return send_bodies(nameserver, topic, [b"x"] * count)


def send_bodies(nameserver: str, topic: str, bodies: Iterable[bytes]) -> list[str]:
    """The ids of messages with these bodies, which were acknowledged."""
    with BlockingProducer("shop", nameserver=nameserver) as producer:
        return [producer.send(Message(topic, body)).message_id for body in bodies]


def send_numbers(nameserver: str, topic: str, numbers: Iterable[int]) -> dict[str, bytes]:
    """Id and body of messages with these bodies, which were acknowledged."""
    bodies = [b"%d" % number for number in numbers]
    return dict(zip(send_bodies(nameserver, topic, bodies), bodies, strict=True))


def make_topic(nameserver: str, topic: str, queues: int = 2) -> None:
    """Make a topic, or give it so many queues."""

    async def ask() -> None:
        async with Admin(nameserver=nameserver) as admin:
            await admin.create_topic(topic, queues=queues)

    asyncio.run(ask())


def delete_topic(nameserver: str, topic: str) -> None:
    """Delete a topic everywhere."""

    async def ask() -> None:
        async with Admin(nameserver=nameserver) as admin:
            await admin.delete_topic(topic)

    asyncio.run(ask())


def stream(spark: SparkSession, nameserver: str, **options: str) -> DataFrame:
    """A stream with these options."""
    return spark.readStream.format("gantrymq").option("gantrymq.namesrv", nameserver).options(**options).load()


def eventually(is_done: Callable[[], bool], what: str) -> None:
    """Ask again until it is so; AssertionError when it is not within WAIT_S."""
    deadline = time.monotonic() + WAIT_S
    while not is_done():
        assert time.monotonic() < deadline, what
        threading.Event().wait(0.1)


def work_off(spark: SparkSession, nameserver: str, folder: Path, **options: str) -> list[int]:
    """One AvailableNow run into Parquet; the rows of each of its batches that had some."""
    writer = stream(spark, nameserver, **options).writeStream.format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "ckpt")).trigger(availableNow=True).start()
    query.awaitTermination()
    return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]


def ids(spark: SparkSession, folder: Path) -> list[str]:
    """The message ids that the Parquet files have, sorted."""
    return sorted(row.msgId for row in spark.read.parquet(str(folder / "out")).select("msgId").collect())
