"""Half messages: the disguise, what it says, and the way back."""

from __future__ import annotations

import pytest

from gantry.leaves import frames, halves, properties, records
from gantry.model import names
from gantry.transaction import half
from gantry.transaction.half import HalfFacts

HOST = bytes((10, 0, 0, 1)) + (10911).to_bytes(4, "big")


def send(text: bytes, **fields: object) -> frames.Send:
    traits, unique_key, keys, tags_code = properties.scan(text)
    made = frames.Send(
        topic="orders",
        queue_id=3,
        properties=text,
        traits=traits,
        unique_key=unique_key,
        keys=keys,
        tags_code=tags_code,
        born_host=HOST,
        born_ms=7,
        body=b"body",
        group="payers",
    )
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def stored(one: frames.Send, queue_offset: int = 5, log_offset: int = 0) -> records.Record:
    one.queue_offset = queue_offset
    buffer = bytearray(records.size_of(one))
    records.encode_run(buffer, 0, log_offset, [one], 99, HOST)
    return records.view(buffer, 0, len(buffer))


@pytest.mark.parametrize(
    ("text", "fields", "is_half"),
    [
        (b"TRAN_MSG\x01true\x02", {}, True),
        (b"TRAN_MSG\x01TRUE", {}, True),
        (b"TRAN_MSG\x01false\x02", {}, False),
        (b"", {"sys_flag": 4}, True),
        (b"", {"sys_flag": 8}, False),
        (b"", {"sys_flag": 12}, False),
        (b"TRAN_MSG\x01true\x02DELAY\x013\x02", {"reconsume_times": 1}, False),
        (b"TRAN_MSG\x01true\x02", {"reconsume_times": 1}, True),
    ],
)
def test_what_is_a_half(text: bytes, fields: dict[str, int], is_half: bool) -> None:
    assert half.is_half(send(text, **fields)) is is_half


@pytest.mark.parametrize("end", [b"\x02", b""])
def test_the_disguise_says_where_it_wants_to_go_and_keeps_everything_else(end: bytes) -> None:
    one = send(b"UNIQ_KEY\x01u\x02TRAN_MSG\x01true\x02PGROUP\x01payers\x02TAGS\x01red" + end)
    half.disguise(one)
    assert (one.topic, one.queue_id) == (names.HALF_TOPIC, 0)
    assert properties.parse(one.properties) == {
        "UNIQ_KEY": "u",
        "TRAN_MSG": "true",
        "PGROUP": "payers",
        "TAGS": "red",
        "REAL_TOPIC": "orders",
        "REAL_QID": "3",
        "__transactionId__": "u",
    }
    assert not properties.scan(one.properties)[0] & properties.TRAIT_ENDS_OPEN


def test_3_2_6_says_it_in_the_sys_flag_and_its_group_in_the_header() -> None:
    one = send(b"UNIQ_KEY\x01u\x02", sys_flag=4)
    half.disguise(one)
    pairs = properties.parse(one.properties)
    assert (pairs["TRAN_MSG"], pairs["PGROUP"]) == ("true", "payers")


def test_what_only_the_broker_may_say_is_taken_out() -> None:
    one = send(b"TRAN_MSG\x01true\x02TRAN_PREPARED_QUEUE_OFFSET\x010\x02REAL_TOPIC\x01x\x02GANTRY_TX_SINCE_MS\x011\x02")
    half.disguise(one)
    facts = HalfFacts(one.properties, 9)
    assert (facts.root, facts.topic, facts.since_ms) == (9, "orders", 0)


def test_the_real_message_is_the_half_without_its_disguise() -> None:
    one = send(b"UNIQ_KEY\x01u\x02TRAN_MSG\x01true\x02TAGS\x01red\x02KEYS\x01k\x02", flag=17, reconsume_times=2)
    before = one.topic, one.queue_id, one.tags_code, one.keys, one.flag, one.born_ms, one.born_host, one.body
    half.disguise(one)
    one.queue_offset = 5
    size = records.size_of(one)
    data = bytearray(size)
    records.encode_run(data, 0, 4711, [one], 9, HOST)
    real = halves.message_at(data, 0, size)
    half.make_real(real, "orders", 3, 4711)
    assert (real.topic, real.queue_id, real.tags_code, real.keys, real.flag, real.born_ms) == before[:6]
    assert (real.born_host, real.body, real.reconsume_times) == (*before[6:], 2)
    assert (real.sys_flag, real.prepared_offset) == (half.SYS_COMMIT, 4711)


def test_copies_carry_identity_checks_and_age_once_each() -> None:
    one = send(b"UNIQ_KEY\x01u\x02TRAN_MSG\x01true\x02")
    half.disguise(one)
    copy = half.put_back(stored(one), 5, 3, 1000)
    again = half.put_back(stored(copy, 40), 5, 4, 1000, is_rearmed=True)
    moved = half.put_back(stored(again, 80), 5, 4, 1000)
    for made, offset, checks, is_rearmed in ((copy, 40, 3, False), (again, 80, 4, True), (moved, 90, 4, False)):
        facts = HalfFacts(made.properties, offset)
        assert (facts.root, facts.checks, facts.since_ms, facts.is_rearmed) == (5, checks, 1000, is_rearmed)
        assert made.properties.count(halves.ROOT) == made.properties.count(halves.CHECKS) == 1
        assert (made.topic, facts.topic, facts.queue_id) == (names.HALF_TOPIC, "orders", 3)
    lost = half.given_up(stored(moved, 90), 5, 15, 1000)
    assert (lost.topic, lost.queue_id) == (names.CHECK_MAX_TIME_TOPIC, 0)


@pytest.mark.parametrize(
    ("text", "immunity_ms"),
    [
        (b"", None),
        (b"CHECK_IMMUNITY_TIME_IN_SECONDS\x0110\x02", 10_000),
        (b"CheckImmunityTimeInSeconds\x0160\x02", 60_000),
        (b"CHECK_IMMUNITY_TIME_IN_SECONDS\x010\x02", 0),
        (b"CHECK_IMMUNITY_TIME_IN_SECONDS\x01-1\x02", None),
        (b"CHECK_IMMUNITY_TIME_IN_SECONDS\x01soon\x02", None),
        (b"CHECK_IMMUNITY_TIME_IN_SECONDS\x01999999999999999\x02", None),
    ],
)
def test_an_immunity_time_that_makes_no_sense_is_none(text: bytes, immunity_ms: int | None) -> None:
    assert HalfFacts(text, 0).immunity_ms == immunity_ms


@pytest.mark.parametrize(
    "text", [b"REAL_QID\x01x\x02", b"TRAN_PREPARED_QUEUE_OFFSET\x01-5\x02", b"\xff\x01\xfe\x02\x01\x02"]
)
def test_facts_of_hostile_properties_do_not_raise(text: bytes) -> None:
    facts = HalfFacts(text, 7)
    assert (facts.root, facts.queue_id, facts.checks) == (7, 0, 0)


def test_a_root_lies_before_its_copy() -> None:
    assert HalfFacts(b"TRAN_PREPARED_QUEUE_OFFSET\x017\x02", 7).root == 7
    assert HalfFacts(b"TRAN_PREPARED_QUEUE_OFFSET\x018\x02", 7).root == 7
    assert HalfFacts(b"TRAN_PREPARED_QUEUE_OFFSET\x016\x02", 7).root == 6
