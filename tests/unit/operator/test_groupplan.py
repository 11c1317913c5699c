"""What changes about a consumer group, and when its offsets are reset: once a request, never behind its back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gantry.model.subscription import GroupConfig
from gantry_operator.api.consumergroup import ConsumerGroup, read
from gantry_operator.api.declared import Kind
from gantry_operator.declared.groupplan import DONE, RUNNING, STALE_MS, ResetState, change, reset
from testkit.kube.declared import document

RESET = {"requestId": "one", "topic": "tea", "to": {"position": "Earliest"}, "force": False}


def wanted(**spec: object) -> ConsumerGroup:
    return read(document(Kind.CONSUMER_GROUP, "shop", **spec))


@st.composite
def groups(draw: st.DrawFn) -> ConsumerGroup:
    retry = {"maxAttempts": draw(st.integers(0, 1000))}
    order = draw(st.sampled_from([{}, {"orderly": True}, {"orderly": False}]))
    return wanted(enabled=draw(st.booleans()), broadcast=draw(st.booleans()), retry=retry, **order)


@st.composite
def configs(draw: st.DrawFn) -> GroupConfig:
    return GroupConfig(
        "shop", draw(st.booleans()), draw(st.booleans()), draw(st.booleans()), retry_queues=draw(st.integers(0, 9)),
        retry_times_max=draw(st.integers(-1, 99)), consume_orderly=draw(st.booleans()),
        attributes=draw(st.just({}) | st.just({"a": "b"})),
    )  # fmt: skip


@given(groups(), st.none() | configs())
def test_one_change_leads_from_any_state_to_the_wanted_one_and_leaves_the_rest_alone(
    group: ConsumerGroup, config: GroupConfig | None
) -> None:
    made = change(group, config) or config
    assert made is not None and change(group, made) is None
    assert (made.consume_enable, made.consume_broadcast_enable, made.retry_times_max) == (
        group.is_enabled, group.may_broadcast, group.attempts_max,
    )  # fmt: skip
    before = config is not None and config.consume_orderly
    assert made.consume_orderly is (before if group.is_orderly is None else group.is_orderly)
    if config is not None:
        assert (made.retry_queues, made.attributes) == (config.retry_queues, config.attributes)


def test_what_is_observed_is_neither_changed_nor_reset() -> None:
    group = wanted(managementPolicy="Observe", enabled=False, resetOffset=RESET)
    assert change(group, GroupConfig("shop")) is None
    assert reset(group, (), True, {}, 0) is ResetState.NOT_ASKED


def test_a_reset_is_carried_out_once_for_each_request() -> None:
    group = wanted(resetOffset=RESET)
    assert reset(group, (), True, {}, 0) is ResetState.RUN
    assert reset(group, (), True, {"requestId": "one", "result": DONE}, STALE_MS) is ResetState.DONE
    assert reset(group, (), True, {"requestId": "other", "result": DONE}, 0) is ResetState.RUN
    assert reset(wanted(), (), True, {}, 0) is ResetState.NOT_ASKED


def test_a_reset_waits_for_members_to_go_unless_it_is_forced() -> None:
    assert reset(wanted(resetOffset=RESET), {"member"}, True, {}, 0) is ResetState.MEMBERS_ONLINE
    assert reset(wanted(resetOffset=RESET | {"force": True}), {"member"}, True, {}, 0) is ResetState.RUN


def test_a_reset_in_a_topic_that_nobody_has_waits_for_it() -> None:
    assert reset(wanted(resetOffset=RESET), (), False, {}, 0) is ResetState.TOPIC_NOT_FOUND


def test_a_reset_that_was_broken_off_is_begun_again_by_somebody_else_after_a_while_and_while_nobody_consumes() -> None:
    group, last = wanted(resetOffset=RESET), {"requestId": "one", "result": RUNNING}
    assert reset(group, (), True, last, STALE_MS - 1) is ResetState.RUNNING
    assert reset(group, (), True, last, STALE_MS) is ResetState.RUN
    assert reset(group, (), True, last, -1) is ResetState.RUN, "a clock that went back must not block it"
    assert reset(group, {"member"}, True, last, STALE_MS) is ResetState.MEMBERS_ONLINE
