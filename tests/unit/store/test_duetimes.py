"""What queue entries of delayed messages carry."""

from __future__ import annotations

import pytest

from gantry.leaves import records
from gantry.model import names
from gantry.store import duetimes

LEVELS_MS = (1000, 5000)
AT_MS = 1_700_000_000_000


def entry(topic: str, text: bytes) -> records.Entry:
    return records.Entry(0, 100, topic, 0, 0, 77, AT_MS, 0, 0, b"", b"", text)


def code_of(topic: str, text: bytes) -> int:
    (code,) = duetimes.codes(topic, [entry(topic, text)], LEVELS_MS)
    return code


def test_an_entry_of_the_timer_topic_carries_the_time() -> None:
    text = b"TIMER_OUT_MS\x01%d\x02" % (AT_MS + 3)
    assert code_of(names.TIMER_TOPIC, text) == AT_MS + 3


def test_a_cancel_is_marked_and_due_at_the_same_time() -> None:
    text = b"TIMER_OUT_MS\x01%d\x02TIMER_DEL_UNIQKEY\x01x\x02" % AT_MS
    code = code_of(names.TIMER_TOPIC, text)
    assert code & duetimes.CANCEL_BIT and code & ~duetimes.CANCEL_BIT == AT_MS and duetimes.is_time(code)


@pytest.mark.parametrize("value", [b"", b"soon", b"17", b"-1"])
def test_without_a_time_there_is_the_tag_hash_as_rocketmq_has_it(value: bytes) -> None:
    text = b"TIMER_OUT_MS\x01%b\x02" % value
    code = code_of(names.TIMER_TOPIC, text)
    assert code == 77 and not duetimes.is_time(code)


def test_a_hash_is_never_taken_for_a_time() -> None:
    assert not duetimes.is_time((1 << 31) - 1) and not duetimes.is_time(-(1 << 31)) and duetimes.is_time(AT_MS)


def test_a_level_is_due_its_duration_after_it_was_stored() -> None:
    codes = [code_of(names.SCHEDULE_TOPIC, b"DELAY\x01%d\x02" % level) for level in (1, 2, 9)]
    assert codes == [AT_MS + 1000, AT_MS + 5000, AT_MS + 5000]


def test_the_two_topics_are_those_that_everybody_else_means() -> None:
    assert {names.SCHEDULE_TOPIC, names.TIMER_TOPIC} == duetimes.TOPICS
