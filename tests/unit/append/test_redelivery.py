"""What becomes of a message that could not be handled: attempts, delays, and what the copy says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantry.append.admit import HALF_BYTES_MAX, KEY_BYTES_MAX
from gantry.append.batch import MessageStamp
from gantry.append.redelivery import (
    MoveToDeadLetters,
    Origin,
    Retry,
    again_of,
    as_dead_letter,
    copy_of,
    fate_of,
    origin_of,
    popped_from,
)
from gantry.leaves import delays, properties
from gantry.leaves.records import PROPERTIES_BYTES_MAX
from gantry.leaves.stored import Record
from gantry.pop import handle
from gantry.pop.handle import ReceiptHandle

_HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")


def record(topic: str = "T", pairs: dict[str, str] | None = None, **fields: int) -> Record:
    given = {"queue_id": 3, "flag": 7, "log_offset": 4711, "sys_flag": 1, "reconsume_times": 0, "prepared_offset": 0}
    given |= fields
    return Record(
        size=500,
        magic=0,
        body_crc=0,
        queue_offset=12,
        born_ms=1_700_000_000_000,
        born_host=b"\x0a\0\0\1\0\0\0\1",
        store_ms=1_700_000_000_001,
        store_host=_HOST,
        body=b"sour",
        topic=topic,
        properties=properties.pack({"UNIQ_KEY": "K"} if pairs is None else pairs),
        **given,
    )


@pytest.mark.parametrize(
    ("times", "times_max", "level", "fate"),
    [
        (0, 16, 0, Retry(3)),
        (1, 16, 0, Retry(4)),
        (15, 16, 0, Retry(18)),
        (16, 16, 0, MoveToDeadLetters()),
        (99, 16, 5, MoveToDeadLetters()),
        (0, 16, 5, Retry(5)),
        (3, 16, 1, Retry(1)),
        (0, 16, -1, MoveToDeadLetters()),
        (0, 0, 0, MoveToDeadLetters()),
        (-5, 16, 0, Retry(3)),
    ],
)
def test_the_first_delay_is_ten_seconds_and_grows_until_the_attempts_are_used_up(
    times: int, times_max: int, level: int, fate: Retry | MoveToDeadLetters
) -> None:
    assert fate_of(times, times_max, level) == fate


@given(times_max=st.integers(0, 30), levels=st.lists(st.integers(0, 20), min_size=31, max_size=31))
def test_a_message_that_always_fails_comes_as_often_as_its_group_allows_and_then_never(
    times_max: int, levels: list[int]
) -> None:
    times, waited = 0, []
    while isinstance(fate := fate_of(times, times_max, levels[times]), Retry):
        waited.append(fate.level)
        times += 1
    assert times == times_max
    assert waited == [level or 3 + at for at, level in enumerate(levels[:times_max])]


def test_a_copy_is_the_same_message_and_says_where_it_came_from() -> None:
    found = record(pairs={"UNIQ_KEY": "K", "TAGS": "a", "KEYS": "o-1", "colour": "red"}, reconsume_times=2)
    copy = copy_of(found, origin_of(found, "g"), Retry(5), "%RETRY%g", 0)
    assert (copy.topic, copy.queue_id, copy.body, copy.flag, copy.sys_flag) == ("%RETRY%g", 0, b"sour", 7, 1)
    assert (copy.born_ms, copy.born_host, copy.reconsume_times) == (found.born_ms, found.born_host, 3)
    assert (copy.unique_key, copy.keys) == (b"K", b"o-1")
    assert copy.traits & properties.TRAIT_DELAY
    said = properties.parse(copy.properties)
    assert said == {
        "UNIQ_KEY": "K",
        "TAGS": "a",
        "KEYS": "o-1",
        "colour": "red",
        "RETRY_TOPIC": "T",
        "ORIGIN_MESSAGE_ID": "7F00000100002A9F0000000000001267",
        "DELAY": "5",
    }


def test_a_dead_letter_does_not_wait_and_names_its_origin_for_every_kind_of_client() -> None:
    found = record()
    copy = copy_of(found, origin_of(found, "g"), MoveToDeadLetters(), "%DLQ%g", 0)
    said = properties.parse(copy.properties)
    assert said["DLQ_ORIGIN_TOPIC"] == said["RETRY_TOPIC"] == "T"
    assert said["DLQ_ORIGIN_MESSAGE_ID"] == "K"
    assert not copy.traits & properties.TRAIT_DELAY


def test_the_properties_do_not_grow_from_round_to_round() -> None:
    pairs = {"UNIQ_KEY": "K", "TIMER_DELIVER_MS": "17", "WAIT": "false"}
    found = record(pairs=pairs)
    sizes = []
    for _ in range(5):
        text = copy_of(found, origin_of(found, "g"), Retry(4), "%RETRY%g", 0).properties
        assert b"TIMER" not in text and b"WAIT" not in text
        sizes.append(len(text))
        # What the delay's disguise adds on the way.
        found = record("%RETRY%g", properties.parse(text) | {"REAL_TOPIC": "%RETRY%g", "REAL_QID": "0"})
    assert len(set(sizes)) == 1


def test_its_own_word_about_its_origin_counts_only_among_this_group_s_redeliveries() -> None:
    claims = {"RETRY_TOPIC": "Elsewhere", "ORIGIN_MESSAGE_ID": "FORGED"}
    assert origin_of(record("T", claims), "g") == Origin("T", "7F00000100002A9F0000000000001267")
    assert origin_of(record("%RETRY%h", claims), "g").topic == "%RETRY%h"
    assert origin_of(record("%RETRY%g", claims), "g") == Origin("Elsewhere", "FORGED")
    assert origin_of(record("%RETRY%g"), "g").topic == "%RETRY%g"
    copy = copy_of(record("T", claims), origin_of(record("T", claims), "g"), Retry(3), "%RETRY%g", 0)
    assert properties.parse(copy.properties)["RETRY_TOPIC"] == "T"


def test_an_origin_that_is_longer_than_any_name_or_id_does_not_count() -> None:
    fits = {"RETRY_TOPIC": "t" * 255, "ORIGIN_MESSAGE_ID": "i" * 255}
    assert origin_of(record("%RETRY%g", fits), "g") == Origin(*fits.values())
    longer = {name: text + "x" for name, text in fits.items()}
    assert origin_of(record("%RETRY%g", longer), "g") == Origin("%RETRY%g", "7F00000100002A9F0000000000001267")


def test_a_copy_of_a_committed_message_is_no_commit() -> None:
    found = record(sys_flag=0x9, prepared_offset=99)
    copy = copy_of(found, origin_of(found, "g"), Retry(3), "%RETRY%g", 0)
    assert (copy.sys_flag, copy.prepared_offset) == (0x1, 0)


def test_a_count_that_a_producer_forged_does_not_overflow() -> None:
    found = record(reconsume_times=(1 << 31) - 1)
    assert copy_of(found, origin_of(found, "g"), MoveToDeadLetters(), "%DLQ%g", 0).reconsume_times == (1 << 31) - 1


def test_a_second_death_names_the_last_life() -> None:
    text = properties.pack({"UNIQ_KEY": "K", "DLQ_ORIGIN_TOPIC": "old", "DLQ_ORIGIN_MESSAGE_ID": "old"})
    said = properties.parse(as_dead_letter(text, "T", ""))
    assert said == {"UNIQ_KEY": "K", "DLQ_ORIGIN_TOPIC": "T", "DLQ_ORIGIN_MESSAGE_ID": "K"}


@given(
    pairs=st.dictionaries(
        st.sampled_from(["DELAY", "WAIT", "colour", "TAGS"]), st.text("abc", min_size=1, max_size=4), max_size=4
    ),
    is_open=st.booleans(),
)
def test_taking_names_out_leaves_the_others_in_their_order(pairs: dict[str, str], is_open: bool) -> None:
    text = properties.pack(pairs)
    if is_open:
        text = text[:-1]
    left = delays.without(text, frozenset({b"DELAY", b"WAIT"}))
    assert properties.parse(left) == {name: value for name, value in pairs.items() if name not in ("DELAY", "WAIT")}
    assert list(properties.parse(left)) == [name for name in pairs if name not in ("DELAY", "WAIT")]


@pytest.mark.parametrize("fate", [Retry(3), MoveToDeadLetters()])
@pytest.mark.parametrize("spare", [0, 4000])
def test_a_copy_of_a_popped_message_whose_properties_leave_no_room_says_less(
    fate: Retry | MoveToDeadLetters, spare: int
) -> None:
    found = record(pairs={"UNIQ_KEY": "K", "note": "n" * (PROPERTIES_BYTES_MAX - 20 - spare)})
    copy = again_of(found, popped_from(found, "T"), fate, "target", 1_700_000_000_002)
    assert len(copy.properties) <= PROPERTIES_BYTES_MAX and copy.unique_key == b"K" and copy.reconsume_times == 1
    assert ("1ST_POP_TIME" in properties.parse(copy.properties)) == bool(spare)


@pytest.mark.parametrize("fate", [Retry(3), MoveToDeadLetters()])
def test_the_largest_message_can_be_popped_again_with_its_handle(fate: Retry | MoveToDeadLetters) -> None:
    """Clients acknowledge a message of a retry topic by the handle that a pop adds to its properties."""
    stamp = MessageStamp("c" * 127, "r" * 127, _HOST)
    own = "n" * (stamp.properties_bytes_max + HALF_BYTES_MAX - KEY_BYTES_MAX - len("note\x01\x02"))
    given = {"note": own, "UNIQ_KEY": "K" * 32} | properties.parse(stamp.suffix)
    copy = again_of(record("T" * 127, given), Origin("T" * 127, "i" * 255), fate, "target", 1_700_000_000_002)
    assert "1ST_POP_TIME" in properties.parse(copy.properties)
    number = (1 << 63) - 1
    longest = handle.encode(ReceiptHandle(number, number, number, 999, 2, "b" * 127, number, number))
    assert len(copy.properties) + len(f"POP_CK\x01{longest}\x02") <= PROPERTIES_BYTES_MAX
