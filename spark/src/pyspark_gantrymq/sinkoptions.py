"""The options of the sink, checked before a query starts; an error about an unknown option names the nearest known one.

    gantrymq.namesrv   required: host:port;host:port
    topic              where rows go that name none
    producerGroup      gantrymq-spark-sink
    mode               at-least-once, or transactional
    sinkId             transactional: the sink's name, which no other query uses; derived from the checkpoint without it
    batchId            transactional, of `df.write`: the batch's number (`gantrymq_transaction` gives it)
    owner              with it: identifies the writer; a batch of another owner is refused.  A query's owner is its id
    deadLetterTopic    rows that are refused for good go there; without it they fail the query
    sendBatchSize      64: messages of one request, at-least-once
    lingerBytes        262144: and so many bytes of them
    inFlight           16: requests under way to one broker
    sendTimeoutMs      60000: how long one message may be refused or unanswered before its task fails
    commitTimeoutMs    120000: how long a commit waits for groups without a master
    immunitySeconds    3600: a half of an undecided batch is put back once in so long

Option names are case-insensitive, as Spark's are.  `checkpointLocation` and what else Spark adds is not ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from gantry.client.settings import check_group, nameserver_list
from gantry.model.names import topic_fault
from gantry.transaction.batches import is_sink

AT_LEAST_ONCE, TRANSACTIONAL = "at-least-once", "transactional"
NAMES = (
    "gantrymq.namesrv", "topic", "producerGroup", "mode", "sinkId", "batchId", "owner", "deadLetterTopic",
    "sendBatchSize", "lingerBytes", "inFlight", "sendTimeoutMs", "commitTimeoutMs", "immunitySeconds",
)  # fmt: skip
_KNOWN = {name.lower(): name for name in NAMES}
_GROUP = "gantrymq-spark-sink"
_SPARKS = frozenset({"checkpointlocation", "path", "queryname", "outputmode"})


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of one sink."""

    namesrv: str
    topic: str = ""
    group: str = _GROUP
    is_transactional: bool = False
    sink: str = ""
    batch: int | None = None
    owner: str = ""
    dead_letters: str = ""
    batch_size: int = 64
    linger_bytes: int = 256 << 10
    in_flight: int = 16
    send_timeout_s: float = 60.0
    commit_timeout_s: float = 120.0
    immunity_s: int = 3600
    checkpoint: str = ""


def read(options: Mapping[str, str]) -> SinkOptions:
    """Parse the options that Spark passes; ValueError naming the wrong option and the reason."""
    given = {name.lower(): text for name, text in options.items()}
    for name in given:
        if name not in _KNOWN and name not in _SPARKS:
            near = difflib.get_close_matches(name, _KNOWN, 1)
            hint = f"; did you mean {_KNOWN[near[0]]}?" if near else f"; there are {', '.join(NAMES)}"
            raise ValueError(f"option {name} is not known to the sink{hint}")
    namesrv = given.get("gantrymq.namesrv", "")
    if not namesrv:
        raise ValueError("option gantrymq.namesrv is missing: host:port of the name server")
    nameserver_list(namesrv)
    mode = given.get("mode", AT_LEAST_ONCE)
    if mode not in (AT_LEAST_ONCE, TRANSACTIONAL):
        raise ValueError(f"option mode is {mode!r}; expected {AT_LEAST_ONCE} or {TRANSACTIONAL}")
    is_transactional = mode == TRANSACTIONAL
    for name in ("sinkId", "batchId", "owner"):
        if name.lower() in given and not is_transactional:
            raise ValueError(f"option {name} goes with mode={TRANSACTIONAL}")
    sink = given.get("sinkid", "")
    if sink and not is_sink(sink):
        raise ValueError(f"option sinkId is {sink[:80]!r}; expected 1 to 128 letters, digits and _ . : -")
    owner = given.get("owner", "")
    if owner and (not is_sink(owner) or "batchid" not in given):
        raise ValueError(f"option owner is {owner[:80]!r}; it goes with batchId, and has the form of a sinkId")
    group = given.get("producergroup", _GROUP)
    check_group(group)
    return SinkOptions(
        namesrv,
        _topic(given, "topic"),
        group,
        is_transactional,
        sink,
        _number(given, "batchId", 0, (1 << 63) - 1) if "batchid" in given else None,
        owner,
        _topic(given, "deadLetterTopic"),
        _number(given, "sendBatchSize", 1, 4096, 64),
        _number(given, "lingerBytes", 1, 3 << 20, 256 << 10),
        _number(given, "inFlight", 1, 1024, 16),
        _number(given, "sendTimeoutMs", 1, 86_400_000, 60_000) / 1000,
        _number(given, "commitTimeoutMs", 1, 86_400_000, 120_000) / 1000,
        _number(given, "immunitySeconds", 1, 86_400, 3600),
        given.get("checkpointlocation", ""),
    )


def _topic(given: Mapping[str, str], name: str) -> str:
    topic = given.get(name.lower(), "")
    fault = topic_fault(topic) if topic else None
    if fault is not None:
        raise ValueError(f"option {name}: {fault}")
    return topic


def _number(given: Mapping[str, str], name: str, least: int, most: int, default: int = 0) -> int:
    text = given.get(name.lower())
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise ValueError(f"option {name} is {text!r}; expected a number from {least} to {most}")
    return number
