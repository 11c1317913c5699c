"""Disguise and delivery: nothing is lost on the way, and nothing of an earlier delay stays."""

from __future__ import annotations

import pytest

from gantry.leaves import frames, properties, records
from gantry.model import names
from gantry.schedule import disguise
from gantry.schedule.disguise import Address, RequestedDelay

NOW_MS = 1_700_000_000_000
HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")


def message(**pairs: str) -> frames.Send:
    packed = properties.pack({"UNIQ_KEY": "u1", "TAGS": "t"} | pairs)
    return frames.Send(topic="orders", queue_id=3, body=b"b", properties=packed, born_host=HOST, reconsume_times=2)


def stored(send: frames.Send) -> records.Record:
    buffer = bytearray(records.size_of(send))
    send.queue_offset = 5
    records.encode_run(buffer, 0, 0, [send], NOW_MS, HOST)
    return records.view(buffer, 0, len(buffer))


@pytest.mark.parametrize(
    ("pairs", "wanted"),
    [
        ({"DELAY": "3"}, RequestedDelay(3, 0)),
        ({"DELAY": "3", "TIMER_DELAY_MS": "7"}, RequestedDelay(3, 0)),
        ({"DELAY": "0", "TIMER_DELAY_MS": "7"}, RequestedDelay(0, NOW_MS + 7)),
        ({"TIMER_DELAY_SEC": "2", "TIMER_DELAY_MS": "7", "TIMER_DELIVER_MS": "9"}, RequestedDelay(0, NOW_MS + 2000)),
        ({"TIMER_DELAY_MS": "7", "TIMER_DELIVER_MS": "9"}, RequestedDelay(0, NOW_MS + 7)),
        ({"TIMER_DELIVER_MS": "9", "__STARTDELIVERTIME": "11"}, RequestedDelay(0, 9, True)),
        ({"__STARTDELIVERTIME": "11"}, RequestedDelay(0, 11, True)),
        ({"TIMER_DELAY_SEC": "-5"}, RequestedDelay(0, NOW_MS - 5000)),
        ({}, RequestedDelay(0, 0)),
    ],
)
def test_what_counts_of_several_wishes_is_what_counts_in_rocketmq(
    pairs: dict[str, str], wanted: RequestedDelay
) -> None:
    assert disguise.requested_delay(message(**pairs).properties, NOW_MS) == wanted


@pytest.mark.parametrize(
    "name", ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "__STARTDELIVERTIME"]
)
@pytest.mark.parametrize("value", ["soon", "1e3", "9" * 40, "\udcff1"])
def test_a_wish_that_is_no_number_is_named(name: str, value: str) -> None:
    text = b"%b\x01%b\x02" % (name.encode(), value.encode("utf-8", "surrogateescape"))
    fault = disguise.requested_delay(text, NOW_MS)
    assert isinstance(fault, str) and fault.startswith(name)


def test_by_level_and_back_is_the_same_message() -> None:
    send = message(DELAY="3")
    disguise.by_level(send, 3, 18)
    assert (send.topic, send.queue_id) == (names.SCHEDULE_TOPIC, 2)
    assert disguise.address(send.properties) == Address("orders", 3, b"u1")
    record = stored(send)
    real = disguise.delivery(record, "orders", 3)
    assert (real.topic, real.queue_id, real.body, real.reconsume_times) == ("orders", 3, b"b", 2)
    assert real.prepared_offset == record.log_offset and real.born_host == HOST
    assert properties.parse(real.properties)["DELAY"] == "3"


def test_a_level_above_the_table_is_the_last_one() -> None:
    send = message()
    disguise.by_level(send, 99, 18)
    assert send.queue_id == 17 and properties.parse(send.properties)["DELAY"] == "18"


def test_by_time_keeps_the_wish_and_says_when() -> None:
    send = message(TIMER_DELIVER_MS="1234567")
    disguise.by_time(send, 1_234_567)
    assert (send.topic, send.queue_id) == (names.TIMER_TOPIC, 0)
    pairs = properties.parse(send.properties)
    assert pairs["TIMER_OUT_MS"] == pairs["TIMER_DELIVER_MS"] == "1234567"


def test_sixteen_delays_leave_no_more_behind_than_one() -> None:
    send = message(TIMER_DELAY_MS="5")
    sizes = set()
    for _ in range(16):
        disguise.by_level(send, 3, 18)
        sizes.add(len(send.properties))
        real = disguise.address(send.properties)
        assert real is not None
        send.topic, send.queue_id = real.topic, real.queue_id
    assert len(sizes) == 1 and "TIMER_DELAY_MS" not in properties.parse(send.properties)


def test_what_a_client_says_under_our_names_does_not_count() -> None:
    send = message(REAL_TOPIC="%RETRY%other", REAL_QID="77", TIMER_OUT_MS="1", TIMER_DELAY_MS="9")
    disguise.by_time(send, NOW_MS)
    assert disguise.address(send.properties) == Address("orders", 3, b"u1")
    assert send.properties.count(b"TIMER_OUT_MS") == send.properties.count(b"REAL_TOPIC") == 1


def test_properties_that_end_open_are_closed_first() -> None:
    send = message()
    send.properties, send.traits = send.properties[:-1], properties.TRAIT_ENDS_OPEN
    disguise.by_level(send, 1, 18)
    assert properties.parse(send.properties)["TAGS"] == "t" and not send.traits & properties.TRAIT_ENDS_OPEN


def test_an_address_needs_a_topic_and_a_queue() -> None:
    assert disguise.address(b"REAL_QID\x011\x02") is None
    assert disguise.address(b"REAL_TOPIC\x01t\x02REAL_QID\x01-1\x02") is None
    assert disguise.address(b"REAL_TOPIC\x01t\x02REAL_QID\x01x\x02") is None


def test_a_cancel_names_topic_and_key() -> None:
    send = disguise.cancel("orders", b"u1", NOW_MS, (NOW_MS - 5, HOST))
    pairs = properties.parse(send.properties)
    assert (pairs["TIMER_DEL_UNIQKEY"], pairs["TIMER_OUT_MS"]) == ("ordersu1", str(NOW_MS))
    assert send.topic == names.TIMER_TOPIC and pairs["TAGS"] == "_RECALL_TAG_"


def test_a_carried_message_is_due_when_it_was_and_counts_its_moves() -> None:
    send = message()
    disguise.by_time(send, NOW_MS + 9)
    once = disguise.carried(stored(send), NOW_MS + 9)
    twice = disguise.carried(stored(once), NOW_MS + 9)
    pairs = properties.parse(twice.properties)
    assert (pairs["TIMER_OUT_MS"], pairs["TIMER_ROLL_TIMES"]) == (str(NOW_MS + 9), "2")
    assert disguise.address(twice.properties) == Address("orders", 3, b"u1")
    assert twice.topic == names.TIMER_TOPIC
