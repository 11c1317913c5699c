"""The options of a query, checked before it starts: a misspelt option is an error, never ignored.

    gantrymq.namesrv                     host:port;host:port
    subscribe | subscribePattern | assign  topics, comma separated; a regular expression over their names (%DLQ%.* too);
                                         {"orders":{"broker-a":[0,1]}}: one of the three
    startingOffsets                      latest (streams), earliest (batches), group (what groupId committed), or
                                         {"orders":{"broker-a":{"0":17,"1":-2}}} with -2 earliest and -1 latest
    startingOffsetsDefault               earliest or latest, for queues of which those know nothing
    startingTimestamp                    milliseconds: the first message stored then or later; no startingOffsets then
    startingOffsetsByTimestamp           the same queue by queue: {"orders":{"broker-a":{"0":1700000000000}}}
    startingOffsetsByTimestampStrategy   where no message is so late: latest, or error
    endingOffsets, endingTimestamp, endingOffsetsByTimestamp   the same for the end of a batch: latest, or JSON
    groupId                              what `group` begins at; a stream tells it how far it is
    commitOffsets                        whether a stream commits its progress for groupId: true, false, or force: also
                                         backwards
    failOnDataLoss                       true: messages that are gone fail the query; false: the log counts them
    tags | sqlFilter                     only messages with such tags, or properties: the broker looks
    maxOffsetsPerTrigger                 messages of a stream's batch, at most; minOffsetsPerTrigger: no batch of fewer,
                                         unless maxTriggerDelay (15m) is over
    maxBytesPerTrigger                   bytes of a stream's batch, about: as stored, by samples
    pullsInFlight                        answers that a task waits for at a time: see `ahead`
    pullBatchSize                        messages that a task asks for at once
    checkCrc                             true: a body that does not match its checksum fails the query; false: not asked
    propertiesFormat                     map, raw or none: see `columns`
    maxOutage                            how long a broker may be away before the query fails
    fetchOffset.numRetries, fetchOffset.retryIntervalMs   how often, and with which pause, the driver asks brokers again
    readFrom                             master, slave, auto: which member of a broker group is asked
    minPartitions, maxRecordsPerPartition, targetRowsPerPartition, maxPartitions   see `planning`

Names count without case, as everywhere in Spark.

None of them is a secret: there are no credentials among them, and none may be put there, since Spark shows options in
plans and in its pages.  What a filter or a name says is its writer's business all the same, so an error names the
option and never its value.  Passwords of databases are the jobs' (`jobs.transactions`): they come from files.

Pure: no Spark, no broker, no clock.
"""

from __future__ import annotations

import difflib
import enum
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gantry.client.results import ReadFrom
from pyspark_gantrymq.columns import FORMATS, MAP
from pyspark_gantrymq.offsets import Queue, flat
from pyspark_gantrymq.planning import Plan

EARLIEST, LATEST = -2, -1
_ENDS = {"earliest": EARLIEST, "latest": LATEST}
_BOTH = (
    "gantrymq.namesrv", "subscribe", "subscribePattern", "assign", "startingOffsets", "startingOffsetsDefault",
    "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "groupId",
    "failOnDataLoss", "tags", "sqlFilter", "minPartitions", "maxRecordsPerPartition", "targetRowsPerPartition",
    "maxPartitions", "maxOutage", "readFrom", "propertiesFormat", "pullsInFlight", "pullBatchSize", "checkCrc",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
)  # fmt: skip
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STREAM_ONLY = (
    "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commitOffsets",
)  # fmt: skip
NAMES = (*_BOTH, *_BATCH_ONLY, *_STREAM_ONLY)
_LANES, _LANES_MAX = 4, 32
_PULL_ROWS, _PULL_ROWS_MAX = 1024, 65_536
_RETRIES, _RETRIES_MAX = 5, 100
_PAUSE_MS, _PAUSE_MS_MAX = 1000, 60_000
_OUTAGE_S_MAX = 86_400.0
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


class Bound(NamedTuple):
    """Where reading begins or ends; the first field that is set counts."""

    at_ms: int | None = None
    each_ms: Mapping[Queue, int] | None = None
    is_match_needed: bool = False  # a time after the last message is an error
    is_committed: bool = False  # the group's committed offset
    exact: Mapping[Queue, int] | None = None
    otherwise: int = EARLIEST


class Commits(enum.Enum):
    """Whether a stream commits its progress for its group."""

    TRUE = "true"  # never backwards
    FALSE = "false"  # nothing
    FORCE = "force"  # also backwards


@dataclass(frozen=True, slots=True)
class Options:
    """The checked options of one query."""

    nameserver: str
    topics: tuple[str, ...]
    pattern: str
    assigned: frozenset[Queue]
    start: Bound
    end: Bound
    group: str
    commits: Commits
    is_strict: bool
    tags: str
    sql: str
    rows_max: int
    bytes_max: int
    rows_min: int
    delay_s: float
    outage_s: float
    retries: int
    pause_s: float
    read_from: ReadFrom
    properties: str
    lanes: int
    pull_rows: int
    is_checked: bool
    plan: Plan

    @property
    def is_filtered(self) -> bool:
        """Return whether a filter is set, so that fewer messages may come than there are offsets."""
        return bool(self.sql) or self.tags not in ("", "*")


def check(given: Mapping[str, str]) -> str:
    """Check the options that all readers have, and return the format of properties.  It is called when it is not known
    yet whether this is a batch, a stream, or a sink, which has options of its own.
    """
    names = {name.lower() for name in given}
    if not names & {"subscribe", "subscribepattern", "assign"}:
        return MAP
    return parse(given, is_stream=not names & {name.lower() for name in _BATCH_ONLY}).properties


def parse(given: Mapping[str, str], is_stream: bool) -> Options:
    """Parse the options; ValueError naming the one that is wrong."""
    allowed = {name.lower(): name for name in (*_BOTH, *(_STREAM_ONLY if is_stream else _BATCH_ONLY))}
    every = {name.lower(): name for name in NAMES}
    values: dict[str, str] = {}
    for key, value in given.items():
        name = every.get(key.lower())
        if name is None:
            near = difflib.get_close_matches(key.lower(), allowed, 1, 0.0)
            raise ValueError(f"unknown option {key[:60]}; did you mean {allowed[near[0]]}?")
        if name.lower() not in allowed:
            raise ValueError(f"option {name} is for {'batches (spark.read)' if is_stream else 'streams'} only")
        values[name] = value.strip()
    if not values.get("gantrymq.namesrv"):
        raise ValueError("option gantrymq.namesrv is missing: host:port of a name server")
    _exactly_one(values, "subscribe", "subscribePattern", "assign")
    _one_at_most(values, "tags", "sqlFilter")
    return Options(
        nameserver=values["gantrymq.namesrv"],
        topics=_topics(values),
        pattern=_pattern(values.get("subscribePattern", "")),
        assigned=_assigned(values.get("assign", "")),
        start=_bound(values, "starting", LATEST if is_stream else EARLIEST),
        end=_bound(values, "ending", LATEST),
        group=values.get("groupId", ""),
        commits=_commits(values),
        is_strict=_yes(values, "failOnDataLoss"),
        tags=values.get("tags", ""),
        sql=values.get("sqlFilter", ""),
        rows_max=_number(values, "maxOffsetsPerTrigger", 0),
        bytes_max=_number(values, "maxBytesPerTrigger", 0),
        rows_min=_number(values, "minOffsetsPerTrigger", 0),
        delay_s=_seconds(values, "maxTriggerDelay", "15m"),
        outage_s=_seconds(values, "maxOutage", "10m" if is_stream else "1m", _OUTAGE_S_MAX),
        retries=_number(values, "fetchOffset.numRetries", _RETRIES, _RETRIES_MAX, 0),
        pause_s=_number(values, "fetchOffset.retryIntervalMs", _PAUSE_MS, _PAUSE_MS_MAX) / 1000,
        properties=_format(values.get("propertiesFormat", MAP)),
        lanes=_number(values, "pullsInFlight", _LANES, _LANES_MAX),
        pull_rows=_number(values, "pullBatchSize", _PULL_ROWS, _PULL_ROWS_MAX),
        is_checked=_yes(values, "checkCrc"),
        read_from=_read_from(values.get("readFrom", "master")),
        plan=Plan(
            _number(values, "minPartitions", 0),
            _number(values, "maxPartitions", 0),
            _number(values, "maxRecordsPerPartition", 0),
            _number(values, "targetRowsPerPartition", 20_000),
        ),
    )


def _exactly_one(values: Mapping[str, str], *names: str) -> None:
    if len([name for name in names if values.get(name)]) != 1:
        raise ValueError(f"exactly one of the options {', '.join(names)} is needed")


def _one_at_most(values: Mapping[str, str], *names: str) -> None:
    if len([name for name in names if values.get(name)]) > 1:
        raise ValueError(f"options {' and '.join(names)} exclude each other")


def _topics(values: Mapping[str, str]) -> tuple[str, ...]:
    named = [topic.strip() for topic in values.get("subscribe", "").split(",")]
    return tuple(dict.fromkeys([topic for topic in named if topic]))


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"option subscribePattern is no regular expression: {error}") from error
    return text


def _assigned(text: str) -> frozenset[Queue]:
    if not text:
        return frozenset()
    try:
        found = json.loads(text)
        return frozenset(
            Queue(topic, broker, int(number))
            for topic, brokers in found.items()
            for broker, numbers in brokers.items()
            for number in numbers
        )
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError('option assign has to be like {"orders":{"broker-a":[0,1]}}') from error


def _bound(values: Mapping[str, str], which: str, otherwise: int) -> Bound:
    """Return where a query begins (`starting`) or ends (`ending`)."""
    offsets, instant, default = f"{which}Offsets", f"{which}Timestamp", values.get("startingOffsetsDefault", "")
    instants = f"{offsets}ByTimestamp"
    _one_at_most(values, offsets, instant, instants)
    text = values.get(offsets, "")
    if default and which == "starting":
        if default not in _ENDS:
            raise ValueError("option startingOffsetsDefault is either earliest or latest")
        otherwise = _ENDS[default]
    strategy = values.get("startingOffsetsByTimestampStrategy", "latest")
    if strategy not in ("latest", "error"):
        raise ValueError("option startingOffsetsByTimestampStrategy is either latest or error")
    is_match_needed = strategy == "error" and which == "starting"
    if values.get(instant):
        return Bound(at_ms=_number(values, instant, 0), is_match_needed=is_match_needed, otherwise=otherwise)
    if values.get(instants):
        each_ms = _by_queue(values[instants], instants, "1700000000000", 1)
        return Bound(each_ms=each_ms, is_match_needed=is_match_needed, otherwise=otherwise)
    if text in ("", *_ENDS):
        return Bound(otherwise=_ENDS.get(text, otherwise))
    if text == "group" and which == "starting":
        if not values.get("groupId"):
            raise ValueError("option startingOffsets is group, and option groupId is missing")
        return Bound(is_committed=True, otherwise=otherwise)
    return Bound(exact=_by_queue(text, offsets, "17", EARLIEST), otherwise=otherwise)


def _by_queue(text: str, option: str, example: str, lowest: int) -> dict[Queue, int]:
    """Parse JSON with a number for each named queue."""
    try:
        found = flat(json.loads(text))
    except (ValueError, AttributeError, TypeError) as error:
        shape = f'{{"orders":{{"broker-a":{{"0":{example}}}}}}}'
        raise ValueError(f"option {option}: neither a word that it knows nor like {shape}") from error
    if any(type(at) is not int or at < lowest for at in found.values()):
        what = "a time is milliseconds, 1" if lowest > 0 else "an offset is a number, -2 (earliest), -1 (latest)"
        raise ValueError(f"option {option}: {what} or above")
    return found


def _number(values: Mapping[str, str], name: str, otherwise: int, largest: int = 10**18, least: int = 1) -> int:
    text = values.get(name, "")
    if not text:
        return otherwise
    if not re.fullmatch("[0-9]{1,18}", text) or int(text) < least:
        raise ValueError(f"option {name} has to be a whole number {'above 0' if least else 'of 0 or above'}")
    if int(text) > largest:
        raise ValueError(f"option {name} may be {largest} at most")
    return int(text)


def _yes(values: Mapping[str, str], name: str) -> bool:
    text = values.get(name, "true").lower()
    if text not in ("true", "false"):
        raise ValueError(f"option {name} is either true or false")
    return text == "true"


def _seconds(values: Mapping[str, str], name: str, otherwise: str, longest_s: float = 30 * 86_400) -> float:
    found = re.fullmatch("([0-9]{1,9})(ms|s|m|h)", values.get(name, otherwise))
    if found is None:
        raise ValueError(f"option {name} is a number with ms, s, m or h")
    if int(found[1]) * _SECONDS[found[2]] > longest_s:
        raise ValueError(f"option {name} may be {longest_s / 3600:.0f}h at most")
    return int(found[1]) * _SECONDS[found[2]]


def _commits(values: Mapping[str, str]) -> Commits:
    text = values.get("commitOffsets")
    if text is None:
        return Commits.TRUE
    if not values.get("groupId"):
        raise ValueError("option commitOffsets is of a group, and option groupId is missing")
    try:
        return Commits(text.lower())
    except ValueError as error:
        raise ValueError(f"option commitOffsets is one of {', '.join(one.value for one in Commits)}") from error


def _format(text: str) -> str:
    if text not in FORMATS:
        raise ValueError(f"option propertiesFormat is one of {', '.join(FORMATS)}")
    return text


def _read_from(text: str) -> ReadFrom:
    try:
        return ReadFrom(text.lower())
    except ValueError as error:
        raise ValueError(f"option readFrom is one of {', '.join(one.value for one in ReadFrom)}") from error
