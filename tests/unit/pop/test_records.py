"""Leases and acknowledgements as stored: golden bytes, and what is neither."""

import json

import pytest

from gantry.leaves import delays
from gantry.pop import records
from gantry.pop.records import AckRecord, LeaseKey, LeaseRecord, Place

KEY = LeaseKey("g", "orders", 2, 100, 1_700_000_000_000)
PLACE = Place("rmq_sys_REVIVE_LOG_DefaultCluster", 3, "broker-a", b"\x7f\0\0\1\0\0\x2a\x9f", 1_700_000_000_000)


def test_a_lease_is_rocketmqs_checkpoint() -> None:
    send = records.lease_message(LeaseRecord(KEY, 1_700_000_060_000, (100, 101, 104)), PLACE)
    assert send.topic == "rmq_sys_wheel_timer"
    assert send.body == (
        b'{"bm":0,"bn":"broker-a","c":"g","d":[0,1,4],"it":60000,"n":3,"pt":1700000000000,"q":2,"ro":0,"so":100,'
        b'"t":"orders"}'
    )
    assert send.properties == (
        b"TAGS\x01ck\x02UNIQ_KEY\x01orders@2@100@g@1700000000000@broker-a@ck\x02"
        b"TIMER_DELIVER_MS\x011700000060000\x02TIMER_OUT_MS\x011700000060000\x02"
        b"REAL_TOPIC\x01rmq_sys_REVIVE_LOG_DefaultCluster\x02REAL_QID\x013\x02"
    )
    assert delays.address(send.properties) == ("rmq_sys_REVIVE_LOG_DefaultCluster", 3)


def test_acknowledgements_are_rocketmqs() -> None:
    one = records.ack_message(AckRecord(KEY, (101,)), 1_700_000_060_000, PLACE)
    assert one.body == b'{"ao":101,"bn":"broker-a","c":"g","pt":1700000000000,"q":2,"so":100,"t":"orders"}'
    assert delays.last(one.properties, b"TAGS") == b"ack"
    assert delays.last(one.properties, b"UNIQ_KEY") == b"orders@2@101@g@1700000000000@broker-a@ack"
    assert delays.last(one.properties, b"TIMER_OUT_MS") == b"1700000061000"
    some = records.ack_message(AckRecord(KEY, (100, 104)), 1_700_000_060_000, PLACE)
    assert json.loads(some.body)["aol"] == [100, 104]
    assert delays.last(some.properties, b"TAGS") == b"bAck"


@pytest.mark.parametrize(
    "record",
    [
        LeaseRecord(KEY, 1_700_000_060_000, (100, 101, 104)),
        LeaseRecord(KEY, 1_699_999_999_000, (100,), "client@1", 7),  # the clock was set back
        LeaseRecord(KEY, 1_700_000_060_000, tuple(range(100, 132)), 'a "client"', 2, is_again=True),
        LeaseRecord(LeaseKey('a "group"', "ordres passés", 0, 7, 8), 9, (9, 10)),
    ],
)
def test_a_lease_is_read_as_it_was_written(record: LeaseRecord) -> None:
    send = records.lease_message(record, PLACE)
    assert records.read(send.properties, send.body) == record


@pytest.mark.parametrize("offsets", [(101,), (100, 104)])
def test_an_acknowledgement_is_read_as_it_was_written(offsets: tuple[int, ...]) -> None:
    send = records.ack_message(AckRecord(KEY, offsets), 1_700_000_060_000, PLACE)
    assert records.read(send.properties, send.body) == AckRecord(KEY, offsets)


def test_a_lease_of_rocketmq_may_have_messages_that_are_done() -> None:
    body = b'{"bm":2,"c":"g","d":[0,1,2],"it":1000,"n":3,"pt":5,"q":0,"so":7,"t":"a","bn":"b","ro":12,"rp":"1"}'
    found = records.read(b"TAGS\x01ck\x02", body)
    assert isinstance(found, LeaseRecord)
    assert (found.offsets, found.end_ms) == ((7, 9), 1005)
    assert records.read(b"TAGS\x01ck\x02", body.replace(b'"d":[0,1,2],', b"")) == found


@pytest.mark.parametrize(
    ("tags", "body"),
    [
        (b"TAGS\x01other\x02", b"{}"),
        (b"", b"{}"),
        (b"TAGS\x01ck\x02", b"{"),
        (b"TAGS\x01ck\x02", b"[" * 100_000),
        (b"TAGS\x01ck\x02", b"[]"),
        (b"TAGS\x01ck\x02", b'{"c":"g","it":1000,"n":33,"pt":5,"q":0,"so":7,"t":"a"}'),
        (b"TAGS\x01ck\x02", b'{"c":"g","it":1000,"n":0,"pt":5,"q":0,"so":7,"t":"a"}'),
        (b"TAGS\x01ck\x02", b'{"c":"g","d":[1,1],"it":1000,"n":2,"pt":5,"q":0,"so":7,"t":"a"}'),
        (b"TAGS\x01ck\x02", b'{"c":"g","d":[-9],"it":1000,"n":1,"pt":5,"q":0,"so":7,"t":"a"}'),
        (b"TAGS\x01ck\x02", b'{"c":"g","it":1e400,"n":1,"pt":5,"q":0,"so":7,"t":"a"}'),
        (b"TAGS\x01ck\x02", b'{"c":"g","it":1000,"n":1,"pt":99999999999999999999,"q":0,"so":7,"t":"a"}'),
        (b"TAGS\x01ck\x02", b'{"c":1,"it":1000,"n":1,"pt":5,"q":0,"so":7,"t":"a"}'),
        (b"TAGS\x01ack\x02", b'{"c":"g","pt":5,"q":0,"so":7,"t":"a"}'),
        (b"TAGS\x01bAck\x02", b'{"aol":[7,"8"],"c":"g","pt":5,"q":0,"so":7,"t":"a"}'),
        (b"TAGS\x01ack\x02", b'{"ao":true,"c":"g","pt":5,"q":0,"so":7,"t":"a"}'),
        (b"TAGS\x01ack\x02", b'{"ao":7,"c":"g","pt":5,"q":-1,"so":7,"t":"a"}'),
    ],
)
def test_anything_else_is_neither(tags: bytes, body: bytes) -> None:
    assert records.read(tags, body) is None


def test_bits_name_offsets_as_javas_bitset_has_them() -> None:
    assert records.offsets_of_bits(100, b"\x05\x80") == [100, 102, 115]
    assert records.offsets_of_bits(100, b"") == []
    assert records.offsets_of_bits(100, b"\xff" * 4 + b"\0") == list(range(100, 132))
    assert records.offsets_of_bits(0, b"\x01" + bytes(1022) + b"\x80") == [0, 8191]


@pytest.mark.parametrize(
    "numbers",
    [
        {"n": 1 << 62},  # without `d`: as many offsets as it says
        {"n": 2, "d": [0, (1 << 63) - 1]},
        {"n": 1, "it": (1 << 63) - 1},
    ],
)
def test_numbers_that_no_lease_can_have_are_none(numbers: dict[str, object]) -> None:
    body = {"bm": 0, "c": "g", "t": "orders", "q": 2, "so": 100, "pt": 1_700_000_000_000, "it": 60_000, **numbers}
    assert records.read(b"TAGS\x01ck\x02", json.dumps(body).encode()) is None
