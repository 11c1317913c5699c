"""What a replay sends: the same message, counted, and nothing of its former way through brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gantry.client.deadletters import DeadLetter, copy_of, only, paced, target_topic
from gantry.leaves import properties
from gantry.leaves.records import Record
from gantry.model.route import MessageQueue

QUEUE = MessageQueue("%DLQ%g", "broker-a", 0)


def letter(text: bytes, sys_flag: int = 0, body: bytes = b"sour", offset: int = 0) -> DeadLetter:
    record = Record(
        size=300,
        magic=0,
        body_crc=0,
        queue_id=0,
        flag=7,
        queue_offset=offset,
        log_offset=4711,
        sys_flag=sys_flag,
        born_ms=1_700_000_000_000,
        born_host=bytes(8),
        store_ms=1_700_000_000_001,
        store_host=bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big"),
        reconsume_times=17,
        prepared_offset=0,
        body=body,
        topic="%DLQ%g",
        properties=text,
    )
    return DeadLetter(QUEUE, record, properties.parse(text))


def test_a_copy_is_the_message_with_its_id_and_one_more_replay() -> None:
    text = properties.pack({"UNIQ_KEY": "K", "TAGS": "a", "colour": "red", "RETRY_TOPIC": "T", "GANTRY_REPLAYS": "2"})
    found = letter(text, sys_flag=0x3 | 0x100 | 0x8 | 0x10, body=b"\x04\x22compressed")
    copy = copy_of(found, "%RETRY%g")
    assert (copy.topic, copy.body, copy.flag, copy.born_ms) == ("%RETRY%g", b"\x04\x22compressed", 7, 1_700_000_000_000)
    assert copy.sys_flag == 0x3 | 0x100, "compressed as it is; neither committed nor from an IPv6 host"
    assert copy.message_ids == ("K",)
    said = properties.parse(copy.properties)
    assert said == {"UNIQ_KEY": "K", "TAGS": "a", "colour": "red", "RETRY_TOPIC": "T", "GANTRY_REPLAYS": "3"}


def test_a_copy_is_neither_delayed_nor_dead_nor_half_of_a_transaction() -> None:
    names = "DELAY REAL_TOPIC REAL_QID TRAN_MSG DLQ_ORIGIN_MESSAGE_ID TIMER_DELIVER_MS WAIT RECONSUME_TIME"
    text = properties.pack(dict.fromkeys(names.split(), "1") | {"DLQ_ORIGIN_TOPIC": "T", "UNIQ_KEY": "K"})
    said = properties.parse(copy_of(letter(text), "%RETRY%g").properties)
    assert said == {"UNIQ_KEY": "K", "RETRY_TOPIC": "T", "GANTRY_REPLAYS": "1"}


@pytest.mark.parametrize(
    "text", [b"", b"odd", b"a\x01b\x01c\x02", b"a\x01\xff\x02", b"GANTRY_REPLAYS\x01-7", b"\x02\x02"]
)
def test_hostile_properties_are_copied_as_they_are(text: bytes) -> None:
    found = letter(text)
    assert found.message_id == "7F00000100002A9F0000000000001267"
    said = properties.parse(copy_of(found, "%RETRY%g").properties)
    assert said.pop("GANTRY_REPLAYS") == "1"
    assert said == {name: value for name, value in properties.parse(text).items() if name != "GANTRY_REPLAYS"}


def test_a_replay_goes_to_the_group_or_to_the_topic_that_the_letter_names() -> None:
    named, nameless = letter(b"RETRY_TOPIC\x01T\x02"), letter(b"")
    assert [target_topic(one, "g", False) for one in (named, nameless)] == ["%RETRY%g", "%RETRY%g"]
    assert [target_topic(one, "g", True) for one in (named, nameless)] == ["T", ""]


async def test_those_named_are_chosen_and_the_pace_is_even() -> None:
    async def letters() -> AsyncIterator[DeadLetter]:
        for number in range(6):
            yield letter(b"UNIQ_KEY\x01K%d\x02" % number)

    assert [one.message_id async for one in only(letters(), ["K4", "K1"])] == ["K1", "K4"]
    loop = asyncio.get_running_loop()
    begun = loop.time()
    assert len([one async for one in paced(letters(), 100.0)]) == 6
    assert loop.time() - begun >= 0.05
