"""What changes about a topic, and in which order: from any state the wanted one is reached, and nothing gets lost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantry.model.topic import PERM_INHERIT, PERM_READ, PERM_READ_WRITE, PERM_WRITE, TopicConfig
from gantry_operator.api.brokertopic import MESSAGE_TYPES, PERMISSIONS, BrokerTopic, permission_of, read
from gantry_operator.api.declared import Kind
from gantry_operator.declared.topicplan import Put, TopicSeen, change, gives_up_queues, is_draining
from testkit.kube.declared import document

STEPS_MAX = 3
QUEUES = st.integers(1, 12)


def wanted(**spec: object) -> BrokerTopic:
    return read(document(Kind.TOPIC, "tea", **spec))


def queues(write: int, read: int) -> dict[str, int]:
    return {"write": write, "read": read}


@st.composite
def topics(draw: st.DrawFn) -> BrokerTopic:
    write = draw(QUEUES)
    limits = {each: draw(st.integers(0, 9)) for each in draw(st.sets(st.sampled_from(["bodyBytes", "properties"])))}
    return wanted(
        queues=queues(write, draw(st.integers(write, 12))),
        permission=draw(st.sampled_from(list(PERMISSIONS))),
        messageType=draw(st.sampled_from(MESSAGE_TYPES)),
        limits=limits,
        placement={"groups": draw(st.lists(st.sampled_from(["b0", "b1"]), unique=True))},
    )


@st.composite
def configs(draw: st.DrawFn) -> TopicConfig:
    write = draw(QUEUES)
    attributes = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "message.type": st.sampled_from(MESSAGE_TYPES),
                "message.size.max": st.sampled_from(["1", "2"]),
                "cleanup.policy": st.just("DELETE"),
            },
        )
    )
    return TopicConfig(
        "tea", draw(st.integers(write, 12)), write, draw(st.integers(0, 15)), order=draw(st.booleans()),
        attributes=attributes,
    )  # fmt: skip


def after(config: TopicConfig | None, put: Put) -> TopicConfig:
    """What a broker has when it took a change."""
    merged = {**(config.attributes if config else {}), **put.attributes}
    return replace(put.config, attributes={key: text for key, text in merged.items() if text is not None})


@given(topics(), st.none() | configs(), st.lists(st.integers(0, 12), min_size=STEPS_MAX))
def test_from_any_state_the_wanted_one_is_reached_when_queues_run_empty(
    topic: BrokerTopic, config: TopicConfig | None, unread: list[int]
) -> None:
    former = config
    for left in [*unread, 0, 0, 0]:
        put = change(topic, "b0", TopicSeen(config, left))
        config = config if put is None else after(config, put)
    assert change(topic, "b0", TopicSeen(config)) is None
    if not topic.is_placed("b0"):
        assert (config is None) is (former is None) and (config is None or not config.is_writable)
        return
    assert config is not None
    assert (config.write_queues, config.read_queues) == (topic.write_queues, topic.read_queues)
    assert config.perm & PERM_READ_WRITE == topic.perm
    assert {key: config.attributes.get(key) for key in topic.attributes} == topic.attributes
    if former is not None:
        assert (config.order, config.attributes.get("cleanup.policy")) == (
            former.order, former.attributes.get("cleanup.policy"),
        )  # fmt: skip


@given(topics(), configs(), st.integers(0, 12))
def test_no_change_takes_a_queue_from_readers_that_is_unread_or_written_to(
    topic: BrokerTopic, config: TopicConfig, unread: int
) -> None:
    put = change(topic, "b0", TopicSeen(config, unread))
    if put is None or not topic.is_placed("b0"):
        return
    assert put.config.read_queues >= put.config.write_queues
    if put.config.read_queues < config.read_queues:
        assert put.config.read_queues >= min(unread, config.read_queues)
        assert config.write_queues <= put.config.read_queues, "producers lost them before"


@given(topics(), configs(), st.integers(0, 12))
def test_only_attributes_that_change_are_said(topic: BrokerTopic, config: TopicConfig, unread: int) -> None:
    put = change(topic, "b0", TopicSeen(config, unread))
    for key, text in {} if put is None else put.attributes.items():
        assert config.attributes.get(key) != text


def test_queues_are_given_up_by_writers_first() -> None:
    topic, config = wanted(queues=queues(2, 2)), TopicConfig("tea", 8, 8)
    first = change(topic, "b0", TopicSeen(config, 0))
    assert first is not None and (first.config.write_queues, first.config.read_queues) == (2, 8)
    held = TopicSeen(first.config, 6)
    assert is_draining(topic, "b0", first.config) and gives_up_queues(topic, "b0", first.config)
    second = change(topic, "b0", held)
    assert second is not None and (second.config.write_queues, second.config.read_queues) == (2, 6)
    third = change(topic, "b0", TopicSeen(second.config, 0))
    assert third is not None and third.config.read_queues == 2


def test_a_group_that_is_left_out_stops_taking_messages_and_serves_those_it_has() -> None:
    topic = wanted(placement={"groups": ["b1"]})
    put = change(topic, "b0", TopicSeen(TopicConfig("tea", 8, 8, PERM_READ_WRITE | PERM_INHERIT)))
    assert put is not None and put.config.perm == PERM_READ | PERM_INHERIT and put.config.read_queues == 8
    assert change(topic, "b0", TopicSeen(put.config)) is None
    assert change(topic, "b0", TopicSeen(None)) is None


@given(st.none() | configs())
def test_what_is_observed_is_never_changed(config: TopicConfig | None) -> None:
    assert change(wanted(managementPolicy="Observe"), "b0", TopicSeen(config)) is None


@pytest.mark.parametrize(
    ("perm", "word"),
    [(PERM_READ_WRITE, "ReadWrite"), (PERM_READ | PERM_INHERIT, "Read"), (PERM_WRITE, "Write"), (0, "None")],
)
def test_a_permission_is_told_in_the_words_it_is_asked_for(perm: int, word: str) -> None:
    assert permission_of(perm) == word
