"""Which messages may go into the log, in RocketMQ's order and with its codes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gantry.append.admit import (
    DELAY_BYTES_MAX,
    HALF_BYTES_MAX,
    KEY_BYTES_MAX,
    OURS_BYTES_MAX,
    Admission,
    MessageLimits,
    WriteGate,
)
from gantry.errors import Refusal
from gantry.leaves import properties
from gantry.metadata.groups import Groups, GroupSettings
from gantry.metadata.topics import Topics, TopicSettings
from gantry.model.topic import MULTI_TAG, PERM_READ, TopicConfig
from testkit.memory_state import MemoryState
from testkit.sendplay import message
from testkit.simclock import SimClock


class Play:
    def __init__(self) -> None:
        clock = SimClock()
        self.topics = Topics(MemoryState(), clock, TopicSettings("b", "c"))
        self.groups = Groups(MemoryState(), clock, GroupSettings())
        self.gate = WriteGate()
        self.admission = Admission(self.topics, self.groups, self.gate, MessageLimits(1000, 200), "b")
        self.topics.on_change(self.admission.topic_changed)

    def code(self, **fields: object) -> int:
        refusal = self.admission.admit(message(**fields))  # type: ignore[arg-type]
        return 0 if refusal is None else refusal.code


def test_an_unknown_topic_is_made_after_the_template_and_remembered() -> None:
    play = Play()
    assert play.code(topic="orders", default_queues=2) == 0
    config = play.topics.get("orders")
    assert config is not None and (config.read_queues, config.write_queues, config.perm) == (2, 2, 6)
    assert play.admission.queues == {"orders": 2}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "bad topic"}, 29),
        ({"topic": ""}, 29),
        ({"topic": "t" * 128}, 29),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, 16),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, 16),
        ({"topic": "new", "default_topic": "nowhere"}, 17),
        ({"topic": "SELF_TEST_TOPIC"}, 16),
        ({"queue_id": 4}, 29),
        ({"body": bytes(1001)}, 13),
        ({"pairs": {"p": "x" * 1020}}, 13),
        ({"pairs": {"TRAN_MSG": "true"}}, 0),
        ({"sys_flag": 4}, 0),
        ({"sys_flag": 8}, 13),
        ({"sys_flag": 12}, 13),
        ({"pairs": {"DELAY": "1"}}, 0),
        ({"pairs": {"TIMER_DELIVER_MS": "17"}}, 0),
        ({"pairs": {"TIMER_DELIVER_MS": "17"}, "topic": "rmq_sys_wheel_timer"}, 16),
        ({"topic": "%RETRY%g"}, 26),
    ],
)
def test_each_rule_has_its_code(fields: dict[str, object], code: int) -> None:
    assert Play().code(**fields) == code


def test_a_redelivery_of_no_group_makes_no_topic() -> None:
    play = Play()
    before = play.topics.names()
    assert [play.code(topic=f"%RETRY%g{number}") for number in range(3)] == [26] * 3
    assert play.topics.names() == before


def test_a_redelivery_may_bring_what_earlier_rounds_added_to_its_properties() -> None:
    play = Play()
    play.groups.ensure("g")
    own = {"p": "x" * (200 + HALF_BYTES_MAX - len("p\x01\x02"))}
    assert play.code(topic="%RETRY%g", pairs=own) == 0
    assert play.code(topic="%RETRY%g", pairs={"p": own["p"] + "x"}) == 13
    room = OURS_BYTES_MAX - DELAY_BYTES_MAX - HALF_BYTES_MAX - len("RETRY_TOPIC\x01\x02")
    assert play.code(topic="%RETRY%g", pairs=own | {"RETRY_TOPIC": "t" * room}) == 0
    assert play.code(topic="%RETRY%g", pairs=own | {"RETRY_TOPIC": "t" * (room + 1)}) == 13


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        ({}, HALF_BYTES_MAX - KEY_BYTES_MAX),
        ({"pairs": {"DELAY": "3"}}, HALF_BYTES_MAX - KEY_BYTES_MAX),
        ({"pairs": {"TRAN_MSG": "true"}}, 0),
        ({"sys_flag": 4}, 0),
    ],
)
def test_what_never_becomes_a_half_may_have_the_properties_that_a_half_brings_along(
    fields: dict[str, dict[str, str]], more: int
) -> None:
    play = Play()
    pairs = fields.get("pairs", {})
    room = 200 + more - len(properties.pack(pairs)) - len("p\x01\x02")
    assert play.code(**fields | {"pairs": pairs | {"p": "x" * room}}) == 0
    assert play.code(**fields | {"pairs": pairs | {"p": "x" * (room + 1)}}) == 13


def test_what_a_broker_writes_into_each_message_does_not_count_when_it_comes_again() -> None:
    """A consumer that sends a message back by itself sends it as it came."""
    play = Play()
    play.groups.ensure("g")
    own = "x" * (200 + HALF_BYTES_MAX - KEY_BYTES_MAX - len("p\x01\x02"))
    assert play.code(pairs={"p": own}) == 0
    stamps = {"MSG_REGION": "r" * 127, "TRACE_ON": "true", "CLUSTER": "c" * 127}
    key = {"UNIQ_KEY": "K" * (KEY_BYTES_MAX - len("UNIQ_KEY\x01\x02"))}
    assert play.code(topic="%RETRY%g", pairs={"p": own} | key | stamps) == 0


def test_a_unique_key_is_bounded_because_other_properties_repeat_it() -> None:
    play = Play()
    play.admission.limits = MessageLimits(1000, 1000)
    assert play.code(pairs={"UNIQ_KEY": "u" * 255}) == 0
    assert play.code(pairs={"UNIQ_KEY": "u" * 256}) == 13


def test_properties_that_a_start_would_take_for_a_lost_sector_are_refused() -> None:
    play = Play()
    play.admission.limits = MessageLimits(1000, 4000)
    assert play.code(pairs={"p": "\0" * 511, "q": "\0" * 511}) == 0
    assert play.code(pairs={"p": "\0" * 512}) == 13


def test_the_first_rule_that_fails_gives_the_code() -> None:
    play = Play()
    everything_wrong = {"queue_id": 99, "body": bytes(2000), "sys_flag": 12}
    assert play.code(topic="no good", **everything_wrong) == 29
    assert play.code(**everything_wrong) == 29
    assert play.code(**everything_wrong | {"queue_id": 0}) == 13
    play.gate.shut("full", Refusal(14, "no room"))
    assert play.code(topic="no good") == 14


def test_a_topic_that_may_not_be_written_is_refused() -> None:
    play = Play()
    play.topics.put(TopicConfig("archive", 4, 4, PERM_READ))
    assert play.code(topic="archive") == 16
    play.topics.put(TopicConfig("closed", 4, 0))
    assert play.code(topic="closed", queue_id=-1) == 16


def test_a_broker_without_write_permission_refuses_ordered_topics_only() -> None:
    play = Play()
    play.topics.put(TopicConfig("ordered", 4, 4, order=True))
    assert play.code(topic="ordered") == 0
    play.admission.set_writable(False)
    assert not play.admission.queues, "what was remembered is asked again"
    assert play.code(topic="ordered") == 16
    assert play.code(topic="orders") == 0


def test_more_queues_to_read_than_to_write_may_still_be_named() -> None:
    # RocketMQ: max(writeQueueNums, readQueueNums) bounds a named queue, writeQueueNums a chosen one.
    play = Play()
    play.topics.put(TopicConfig("shrinking", read_queues=8, write_queues=2))
    assert play.code(topic="shrinking", queue_id=7) == 0
    chosen = [message("shrinking", queue_id=-1) for _ in range(4)]
    assert all(play.admission.admit(send) is None for send in chosen)
    assert sorted(send.queue_id for send in chosen) == [0, 0, 1, 1]


def test_a_changed_topic_is_looked_at_again() -> None:
    play = Play()
    assert play.code(queue_id=3) == 0
    play.topics.put(TopicConfig("orders", 1, 1))
    assert "orders" not in play.admission.queues
    assert play.code(queue_id=3) == 29
    play.topics.delete("orders")
    assert play.code(queue_id=3) == 0


def test_topics_with_specialities_are_never_remembered() -> None:
    play = Play()
    play.topics.put(TopicConfig("tagged", 4, 4, filter_type=MULTI_TAG))
    play.groups.ensure("g")
    send = message("tagged")
    assert play.admission.admit(send) is None and send.sys_flag == 2
    assert play.code(topic="%RETRY%g") == 0
    assert not play.admission.queues


def test_a_redelivery_beyond_the_groups_patience_goes_to_the_dead_letters() -> None:
    play = Play()
    play.groups.ensure("g")
    last = message("%RETRY%g", reconsume_times=16)
    assert play.admission.admit(last) is None and last.topic == "%RETRY%g"
    dead = message("%RETRY%g", pairs={"DELAY": "18"}, reconsume_times=17, queue_id=0)
    assert play.admission.admit(dead) is None
    assert (dead.topic, dead.queue_id) == ("%DLQ%g", 0)
    assert properties.parse(dead.properties)["DELAY"] == "-1"
    config = play.topics.get("%DLQ%g")
    assert config is not None and (config.write_queues, config.perm) == (1, 6)


def test_what_an_orderly_group_gives_up_is_a_dead_letter_at_once() -> None:
    play = Play()
    play.groups.ensure("g")
    play.groups.ensure("h")
    play.admission.is_orderly = lambda group: group == "g"
    given_up, other = message("%RETRY%g", reconsume_times=1), message("%RETRY%h", reconsume_times=1)
    assert play.admission.admit(given_up) is None and given_up.topic == "%DLQ%g"
    assert play.admission.admit(other) is None and other.topic == "%RETRY%h"
    replayed = message("%RETRY%g", reconsume_times=0)
    assert play.admission.admit(replayed) is None and replayed.topic == "%RETRY%g"


def test_a_retry_topic_that_may_be_of_two_groups_is_of_the_one_whose_topic_the_message_came_from() -> None:
    play = Play()
    for group, topic in (("a", "b_c"), ("a_b", "c")):
        play.groups.ensure(group)
        play.topics.put(TopicConfig(topic, 1, 1))
    for origin, group in (("b_c", "a"), ("c", "a_b"), ("unknown", "a")):
        dead = message("%RETRY%a_b_c", pairs={"RETRY_TOPIC": origin}, reconsume_times=17)
        assert play.admission.admit(dead) is None
        assert dead.topic == f"%DLQ%{group}"


def test_a_client_may_set_its_own_patience_if_it_is_new_enough() -> None:
    play = Play()
    play.groups.ensure("g")
    new = message("%RETRY%g", reconsume_times=3, max_reconsume_times=2, version=121)
    old = message("%RETRY%g", reconsume_times=3, max_reconsume_times=2, version=120)
    assert play.admission.admit(new) is None and new.topic == "%DLQ%g"
    assert play.admission.admit(old) is None and old.topic == "%RETRY%g"


def test_a_redelivery_that_asks_for_delay_keeps_its_wish() -> None:
    play = Play()
    play.groups.ensure("g")
    send = message("%RETRY%g", pairs={"DELAY": "3"}, reconsume_times=1)
    assert play.admission.admit(send) is None and send.traits & properties.TRAIT_DELAY


def test_the_gate_is_shut_while_any_reason_is_left() -> None:
    gate = WriteGate()
    gate.shut("disk", Refusal(14, "disk"))
    gate.shut("stop", Refusal(14, "stop"))
    gate.reopen("disk")
    assert gate.refusal == Refusal(14, "stop") and gate.reasons == ["stop"]
    gate.reopen("stop")
    gate.reopen("never shut")
    assert gate.refusal is None


def test_a_topics_own_limits_hold_for_every_message_also_when_they_come_later() -> None:
    play = Play()
    assert play.code(topic="orders", body=bytes(100)) == 0
    config = play.topics.get("orders")
    assert config is not None
    play.topics.put(replace(config, attributes={"message.size.max": "10", "property.count.max": "1"}))
    assert play.code(topic="orders", body=bytes(11)) == 13
    assert play.code(topic="orders", body=bytes(10), pairs={"a": "1", "b": "2"}) == 13
    assert play.code(topic="orders", body=bytes(10), pairs={"a": "1", "TAGS": "t"}) == 0
    assert play.admission.queues == {}, "the fast path does not know these limits"
    play.topics.put(replace(config, attributes={"message.type": "DELAY"}))
    assert play.code(topic="orders", body=bytes(10)) == 13
    play.admission.checks_type = False
    assert play.code(topic="orders", body=bytes(10)) == 0
    play.topics.put(config)
    assert play.code(topic="orders", body=bytes(100)) == 0
