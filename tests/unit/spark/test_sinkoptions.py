"""What may be asked of the sink, and what its rows become, without Spark."""

from __future__ import annotations

import pytest

from pyspark_gantrymq import sinkcolumns, sinkoptions

GOOD = {"gantrymq.namesrv": "127.0.0.1:9876", "topic": "orders"}


def test_names_are_case_insensitive_and_what_spark_adds_is_passed_over() -> None:
    read = sinkoptions.read({"GantryMQ.Namesrv": "h:1", "TOPIC": "t", "checkpointLocation": "c", "path": "p"})
    assert (read.namesrv, read.topic, read.checkpoint) == ("h:1", "t", "c")


def test_numbers_are_those_that_are_given() -> None:
    given = {"sendBatchSize": "7", "lingerBytes": "8", "inFlight": "9", "sendTimeoutMs": "1500", "immunitySeconds": "6"}
    read = sinkoptions.read(GOOD | given | {"commitTimeoutMs": "2500"})
    assert (read.batch_size, read.linger_bytes, read.in_flight, read.immunity_s) == (7, 8, 9, 6)
    assert (read.send_timeout_s, read.commit_timeout_s) == (1.5, 2.5)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"topix": "t"}, "did you mean topic"),
        ({"zzzzzz": "t"}, "there are gantrymq.namesrv"),
        ({"gantrymq.namesrv": ""}, "gantrymq.namesrv is missing"),
        ({"inFlight": "0"}, "from 1 to 1024"),
        ({"mode": "transactional", "sinkId": "a/b"}, "option sinkId"),
        ({"batchId": "3"}, "goes with mode=transactional"),
        ({"mode": "transactional", "batchId": "-1"}, "option batchId"),
        ({"owner": "query"}, "goes with mode=transactional"),
        ({"mode": "transactional", "owner": "query"}, "option owner is 'query'; it goes with batchId"),
        ({"mode": "transactional", "batchId": "1", "owner": "a b"}, "option owner"),
    ],
)
def test_what_is_wrong_with_an_option_is_said(more: dict[str, str], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        sinkoptions.read(GOOD | more)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ([("topic", "string")], "wants a column body"),
        ([("body", "string")], "body is string"),
        ([("body", "binary"), ("msg_id", "string")], "no column 'msg_id'"),
        ([("body", "binary"), ("delayTimeLevel", "int"), ("deliverTimestamp", "timestamp")], "exclude each other"),
    ],
)
def test_what_is_wrong_with_a_schema_is_said(fields: list[tuple[str, str]], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        sinkcolumns.check(fields, has_topic=True)


def test_a_topic_comes_from_the_option_or_a_column() -> None:
    sinkcolumns.check([("body", "binary"), ("topic", "string")], has_topic=False)
    with pytest.raises(ValueError, match="no topic"):
        sinkcolumns.check([("body", "binary")], has_topic=False)
