"""What a query may ask for: each mistake is named before anything starts."""

from __future__ import annotations

import re

import pytest

from gantry.client.results import ReadFrom
from pyspark_gantrymq import options, sinkoptions
from pyspark_gantrymq.offsets import Queue
from pyspark_gantrymq.options import EARLIEST, LATEST, Bound, Commits, parse
from pyspark_gantrymq.planning import Plan
from testkit.sources import ROOT

NEEDED = {"gantrymq.namesrv": "h:1", "subscribe": "orders"}


def test_a_batch_begins_at_the_earliest_and_a_stream_at_the_latest() -> None:
    assert parse(NEEDED, is_stream=False).start == Bound(otherwise=EARLIEST)
    assert parse(NEEDED, is_stream=True).start == Bound(otherwise=LATEST)


def test_times_are_named_queue_by_queue() -> None:
    strategy = {"startingOffsetsByTimestampStrategy": "error"}
    found = parse({**NEEDED, "startingOffsetsByTimestamp": '{"orders":{"b":{"0":17}}}', **strategy}, is_stream=True)
    assert found.start.each_ms == {Queue("orders", "b", 0): 17} and found.start.is_match_needed
    end = parse({**NEEDED, "endingOffsetsByTimestamp": '{"orders":{"b":{"0":17}}}', **strategy}, is_stream=False).end
    assert end.each_ms == {Queue("orders", "b", 0): 17} and not end.is_match_needed


def test_an_outage_is_waited_out_for_minutes_by_a_stream_and_from_the_master() -> None:
    stream, batch = parse(NEEDED, is_stream=True), parse(NEEDED, is_stream=False)
    assert (stream.outage_s, batch.outage_s, stream.read_from) == (600, 60, ReadFrom.MASTER)


def test_a_stream_tells_its_group_unless_it_is_told_not_to() -> None:
    group = {**NEEDED, "groupId": "g"}
    assert parse(group, is_stream=True).commits is Commits.TRUE
    assert parse({**group, "commitOffsets": "Force"}, is_stream=True).commits is Commits.FORCE
    assert parse({**group, "commitOffsets": "false"}, is_stream=True).commits is Commits.FALSE


def test_nobody_needs_to_be_asked_a_second_time() -> None:
    found = parse({**NEEDED, "fetchOffset.numRetries": "0", "fetchOffset.retryIntervalMs": "250"}, is_stream=False)
    assert (found.retries, found.pause_s) == (0, 0.25)
    assert (parse(NEEDED, is_stream=False).retries, parse(NEEDED, is_stream=False).pause_s) == (5, 1.0)


def test_a_query_is_planned_as_its_options_say() -> None:
    given = {"minPartitions": "2", "maxPartitions": "9", "maxRecordsPerPartition": "50", "targetRowsPerPartition": "7"}
    assert parse({**NEEDED, **given}, is_stream=False).plan == Plan(2, 9, 50, 7)
    assert parse(NEEDED, is_stream=False).plan == Plan(0, 0, 0, 20_000)
    given = {"minOffsetsPerTrigger": "3", "maxTriggerDelay": "90s", "maxOffsetsPerTrigger": "8"}
    found = parse({**NEEDED, **given, "maxBytesPerTrigger": "11"}, is_stream=True)
    assert (found.rows_min, found.delay_s, found.rows_max, found.bytes_max) == (3, 90, 8, 11)
    assert (parse(NEEDED, is_stream=True).rows_min, parse(NEEDED, is_stream=True).delay_s) == (0, 900)
    assert parse({**NEEDED, "endingTimestamp": "17"}, is_stream=False).end.at_ms == 17


def test_names_count_without_case() -> None:
    given = {"GANTRYMQ.namesrv": "h:1", "SUBSCRIBE": "a, b,,a"}
    assert parse(given, is_stream=False).topics == ("a", "b")


def test_offsets_are_named_queue_by_queue() -> None:
    found = parse({**NEEDED, "startingOffsets": '{"orders":{"b":{"0":17,"1":-1}}}'}, is_stream=True)
    assert found.start.exact == {Queue("orders", "b", 0): 17, Queue("orders", "b", 1): LATEST}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOffset": "latest"}, "did you mean startingOffsets"),
        ({"subscribe": ""}, "exactly one of the options subscribe, subscribePattern, assign"),
        ({"subscribePattern": "a.*"}, "exactly one of"),
        ({"gantrymq.namesrv": " "}, "gantrymq.namesrv is missing"),
        ({"startingOffsets": "first"}, "startingOffsets: neither a word"),
        ({"startingOffsets": '{"t":{"b":{"0":-3}}}'}, "an offset is a number, -2"),
        ({"startingOffsets": '{"t":{"b":{"0":true}}}'}, "an offset is a number, -2"),
        ({"startingOffsets": "group"}, "groupId is missing"),
        ({"startingOffsets": "latest", "startingTimestamp": "1"}, "exclude each other"),
        ({"startingOffsetsDefault": "none"}, "startingOffsetsDefault"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp has to be a whole number"),
        ({"endingOffsets": "latest"}, "for batches"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger has to be"),
        ({"maxTriggerDelay": "15"}, "maxTriggerDelay"),
        ({"maxOutage": "25h"}, "maxOutage may be 24h at most"),
        ({"maxOutage": "long"}, "maxOutage is a number with"),
        ({"maxBytesPerTrigger": "1MB"}, "maxBytesPerTrigger has to be"),
        ({"pullsInFlight": "33"}, "pullsInFlight may be 32 at most"),
        ({"pullBatchSize": "65537"}, "pullBatchSize may be 65536 at most"),
        ({"checkCrc": "yes"}, "checkCrc is either true or false"),
        ({"commitOffsets": "false"}, "option commitOffsets is of a group, and option groupId is missing"),
        ({"groupId": "g", "commitOffsets": "no"}, "commitOffsets is one of true, false, force"),
        ({"fetchOffset.numRetries": "-1"}, "numRetries has to be a whole number of 0 or above"),
        ({"fetchOffset.numRetries": "101"}, "numRetries may be 100 at most"),
        ({"fetchOffset.retryIntervalMs": "0"}, "retryIntervalMs has to be a whole number above 0"),
        ({"groupIdPrefix": "spark"}, "unknown option groupIdPrefix; did you mean groupId"),
        ({"propertiesFormat": "json"}, "propertiesFormat is one of map, raw, none"),
        ({"readFrom": "nearest"}, "readFrom is one of auto, master, slave"),
        ({"startingOffsetsByTimestamp": "1700000000000"}, "nor like"),
        ({"startingOffsetsByTimestamp": '{"t":{"b":{"0":-1}}}'}, "a time is milliseconds"),
        ({"startingOffsetsByTimestamp": '{"t":{"b":{"0":1}}}', "startingTimestamp": "1"}, "exclude each other"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "either latest or error"),
        ({"tags": "a", "sqlFilter": "b = 1"}, "exclude each other"),
        ({"failOnDataLoss": "no"}, "either true or false"),
    ],
)
def test_a_mistake_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse({**NEEDED, **given}, is_stream=True)


def test_an_option_of_streams_is_none_of_batches() -> None:
    with pytest.raises(ValueError, match="maxOffsetsPerTrigger is for streams"):
        parse({**NEEDED, "maxOffsetsPerTrigger": "5"}, is_stream=False)


ANY_TEXT = ("gantrymq.namesrv", "subscribe", "groupId", "tags", "sqlFilter")
OF_BOTH = [name for name in options.NAMES if name not in ANY_TEXT]


@pytest.mark.parametrize("name", OF_BOTH)
@pytest.mark.parametrize("is_stream", [True, False])
def test_an_error_names_the_option_and_shows_no_value(name: str, is_stream: bool) -> None:
    given = {"gantrymq.namesrv": "h:1", "groupId": "g", name: "(s3cret"}
    if name not in ("subscribePattern", "assign"):
        given["subscribe"] = "orders"
    with pytest.raises(ValueError, match=f"^option {re.escape(name)}") as failure:
        parse(given, is_stream=is_stream)
    assert "s3cret" not in str(failure.value)


def test_every_option_with_a_form_has_its_check_in_one_of_the_two() -> None:
    for name in OF_BOTH:
        given = {"gantrymq.namesrv": "h:1", "groupId": "g", name: "(s3cret"}
        given |= {} if name in ("subscribePattern", "assign") else {"subscribe": "orders"}
        said = []
        for is_stream in (True, False):
            with pytest.raises(ValueError) as failure:
                parse(given, is_stream=is_stream)
            said.append(str(failure.value))
        assert [text for text in said if not re.search("is for (batches|streams)|exactly one|unknown", text)], name


def test_an_option_that_nobody_knows_shows_no_value() -> None:
    with pytest.raises(ValueError) as failure:
        parse({**NEEDED, "typo": "(s3cret"}, is_stream=True)
    assert "s3cret" not in str(failure.value)


def in_table(heading: str) -> set[str]:
    """The options in the README's table below a heading."""
    below = (ROOT / "spark" / "README.md").read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    table = below.partition("| option |")[2].partition("\n\n")[0]
    return set(re.findall("`([^`]+)`", " ".join(line.split("|")[1] for line in table.splitlines()[2:])))


def test_every_option_is_documented() -> None:
    assert in_table("Options") == set(options.NAMES)
    assert in_table("Writing") == set(sinkoptions.NAMES)
    for names, text in ((options.NAMES, options.__doc__ or ""), (sinkoptions.NAMES, sinkoptions.__doc__ or "")):
        assert not [name for name in names if name not in text]


def test_what_is_wrong_for_anyone_who_reads_is_told_before_it_is_known_who_does() -> None:
    options.check({**NEEDED, "maxOffsetsPerTrigger": "5"})
    options.check({**NEEDED, "endingOffsets": "latest"})
    options.check({"gantrymq.namesrv": "h:1", "topic": "orders", "sinkId": "a sink's"})
    for wrong in ({"startingOffset": "latest"}, {"endingOffsets": "latest", "maxOffsetsPerTrigger": "5"}):
        with pytest.raises(ValueError):
            options.check({**NEEDED, **wrong})
