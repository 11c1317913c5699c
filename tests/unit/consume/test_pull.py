from __future__ import annotations

from typing import Any

import pytest

from gantry.consume.filter import Wanted
from gantry.consume.filterdata import ConsumerFilters
from gantry.consume.pull import CLASS_FILTER, SUBSCRIPTION_INLINE, PullChecks, PullRefusal, code_of, reply_head
from gantry.consume.sql92.program import Program
from gantry.leaves import frames
from gantry.metadata.clients import ClientLimits, Clients, Consumption, GroupClient
from gantry.metadata.groups import Groups, GroupSettings
from gantry.metadata.topics import Topics, TopicSettings
from gantry.model.subscription import GroupConfig, Subscription
from gantry.model.topic import TopicConfig
from gantry.store.fetched import Fetched, FetchStatus
from gantry.wire import headers
from gantry.wire.codes import RequestCode
from gantry.wire.command import reply
from testkit.fake_connection import FakeConnection
from testkit.memory_state import MemoryState
from testkit.simclock import SimClock


class Play:
    """The checks over real tables."""

    def __init__(self, auto_create: bool = True, forbidden: dict[str, dict[str, int]] | None = None) -> None:
        clock = SimClock()
        self.topics = Topics(MemoryState(), clock, TopicSettings("b", "c"))
        self.groups = Groups(MemoryState({"forbiddenTable": forbidden or {}}), clock, GroupSettings(auto_create))
        self.clients = Clients(ClientLimits())
        self.filters = ConsumerFilters(MemoryState(), clock, lambda cause, text: None)
        self.clients.on_beat(self.filters.heard)
        self.checks = PullChecks(self.topics, self.groups, self.clients, self.filters, "10.0.0.1:10911")
        self.topics.put(TopicConfig("T", read_queues=4, write_queues=2))

    def online(self, *subscriptions: Subscription, model: str = "CLUSTERING") -> None:
        connection: Any = FakeConnection()
        consumption = Consumption("CONSUME_PASSIVELY", model, "CONSUME_FROM_LAST_OFFSET")
        self.clients.register_consumer(connection, "g", GroupClient("x", 0, 479, 0.0), consumption, subscriptions)

    def wanted(self, **fields: Any) -> Wanted | PullRefusal:
        return self.checks.wanted(frames.Pull(**({"group": "g", "topic": "T"} | fields)))

    def inline(self, **fields: Any) -> Wanted | PullRefusal:
        return self.wanted(**({"sys_flag": SUBSCRIPTION_INLINE, "subscription": "*"} | fields))


def refused(answer: Wanted | PullRefusal) -> tuple[int, int]:
    assert isinstance(answer, PullRefusal), answer
    assert answer.remark
    return answer.code, answer.forbidden


def test_an_inline_subscription_is_what_counts() -> None:
    play = Play()
    play.online(Subscription("T", "B"))
    assert play.inline(subscription="A || C") == frozenset({65, 67})
    assert play.inline(subscription="*") is None
    assert play.inline(subscription=None) is None


def test_without_one_the_heartbeat_counts() -> None:
    play = Play()
    play.online(Subscription("T", "B"), Subscription("%RETRY%g"))
    assert play.wanted() == frozenset({66})


def test_an_unknown_group_comes_to_be_by_pulling() -> None:
    play = Play()
    assert play.inline(group="fresh") is None
    assert play.groups.get("fresh") is not None


def test_the_first_check_that_fails_is_the_answer() -> None:
    play = Play(auto_create=False)
    everything_wrong = {"group": "h", "topic": "missing", "queue_id": 99}
    play.checks.is_readable = False
    assert refused(play.inline(**everything_wrong)) == (16, 1)
    play.checks.is_readable = True
    assert refused(play.inline(**everything_wrong)) == (26, 0)
    play.groups.put(GroupConfig("h", consume_enable=False))
    assert refused(play.inline(**everything_wrong)) == (16, 2)
    play.groups.put(GroupConfig("h"))
    assert refused(play.inline(**everything_wrong)) == (17, 0)
    play.topics.put(TopicConfig("missing", read_queues=1, perm=2))
    assert refused(play.inline(**everything_wrong)) == (16, 3)
    play.topics.put(TopicConfig("missing", read_queues=1))
    assert refused(play.inline(**everything_wrong)) == (29, 0)
    assert play.inline(**(everything_wrong | {"queue_id": 0})) is None


@pytest.mark.parametrize("queue_id", [-1, 4, 2**31 - 1])
def test_only_the_queues_that_may_be_read_are_queues(queue_id: int) -> None:
    answer = Play().inline(queue_id=queue_id)
    assert refused(answer) == (29, 0)
    assert isinstance(answer, PullRefusal)
    assert answer.remark == f"queueId[{queue_id}] is illegal, topic:[T] topicConfig.readQueueNums:[4] consumer:[g]"


def test_a_subscription_by_heartbeat_has_its_own_checks_in_order() -> None:
    play = Play(forbidden={"g": {"T": 4}})
    assert refused(play.wanted()) == (24, 0)
    play.groups.put(GroupConfig("g", consume_broadcast_enable=False))
    play.online(Subscription("U"), model="BROADCASTING")
    assert refused(play.wanted()) == (16, 4)
    play.groups.put(GroupConfig("g"))
    assert refused(play.wanted()) == (16, 5)
    play = Play()
    play.online(Subscription("U"))
    assert refused(play.wanted()) == (24, 0)
    play.online(Subscription("T", "*", 5))
    assert refused(play.wanted(sub_version=6)) == (25, 0)
    assert play.wanted(sub_version=5) is None


def test_an_expression_that_says_nothing_does_not_parse() -> None:
    assert refused(Play().inline(subscription=" || ")) == (23, 0)


def test_sql_in_the_pull_is_compiled_once_and_refused_with_the_fault() -> None:
    play = Play()
    program = play.inline(subscription="a > 5", expression_type="SQL92")
    assert isinstance(program, Program)
    assert play.inline(subscription="a > 5", expression_type="SQL92") is program
    for expression, kind in (("", "SQL92"), ("a >", "SQL92"), ("a > 5", "GROOVY")):
        assert refused(play.inline(subscription=expression, expression_type=kind)) == (23, 0)


def test_long_expressions_do_not_pile_up() -> None:
    play = Play()
    for number in range(500):
        play.inline(subscription=f"a = '{number}{'x' * 10_000}'", expression_type="SQL92")
    assert len(play.checks._expressions) < 110


def test_sql_in_heartbeats_has_codes_for_what_is_missing_and_what_is_old() -> None:
    play = Play()
    play.online(Subscription("T", "a > 5", 7, "SQL92"))
    program = play.wanted(sub_version=7)
    assert isinstance(program, Program) and program.names == (b"a",)
    assert refused(play.wanted(sub_version=8)) == (25, 0)  # the subscription itself is looked at first
    play.filters.get("T", "g").version = 6  # type: ignore[union-attr]
    assert refused(play.wanted(sub_version=7)) == (28, 0)
    play.online(Subscription("T", "a >", 9, "SQL92"))
    assert refused(play.wanted(sub_version=9)) == (27, 0)


def test_class_filters_are_refused() -> None:
    assert refused(Play().inline(sys_flag=SUBSCRIPTION_INLINE | CLASS_FILTER)) == (1, 0)


def test_a_class_filter_said_by_heartbeat_means_no_filter_here() -> None:
    play = Play()
    play.online(Subscription("T", "org.example.Filter", class_filter_mode=True))
    assert play.wanted() is None


def test_ever_new_expressions_do_not_fill_the_memory() -> None:
    play = Play()
    for number in range(10_001):
        play.inline(subscription=f"tag-{number}")
    assert len(play.checks._expressions) <= 10_000
    assert play.inline(subscription="A") == frozenset({65})


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("status", list(FetchStatus))
def test_every_reply_reads_as_the_general_path_would_write_it(status: FetchStatus, offset: int) -> None:
    pull = frames.Pull(opaque=-7, queue_offset=offset)
    fetched = Fetched(status, 2**62, -1, 12)
    code = code_of(status, offset)
    ext = headers.to_ext(nextBeginOffset=2**62, minOffset=-1, maxOffset=12, suggestWhichBrokerId=0)
    expected = reply(pull, code, status.name, ext)
    head = reply_head(pull, code, fetched)
    used, (found,) = frames.decode(head, 0, len(head))
    assert used == len(head)
    assert isinstance(found, frames.Command)
    assert {name: getattr(found, name) for name in frames.Command.__slots__} == {
        name: getattr(expected, name) for name in frames.Command.__slots__
    }
    headers.parse_reply(RequestCode.PULL_MESSAGE, found.ext)


def test_the_head_counts_the_body_that_follows() -> None:
    fetched = Fetched(FetchStatus.FOUND, 1, 0, 1, bytes=5)
    frame = reply_head(frames.Pull(), 0, fetched) + b"abcde"
    _, (found,) = frames.decode(frame, 0, len(frame))
    assert found.body == b"abcde"  # type: ignore[union-attr]


def test_the_statuses_have_rocketmqs_codes() -> None:
    codes = {status.name: (int(code_of(status, 0)), int(code_of(status, 7))) for status in FetchStatus}
    assert codes == {
        "FOUND": (0, 0),
        "NO_MATCHED_MESSAGE": (20, 20),
        "MESSAGE_WAS_REMOVING": (20, 20),
        "NO_MATCHED_LOGIC_QUEUE": (19, 21),
        "NO_MESSAGE_IN_QUEUE": (19, 21),
        "OFFSET_OVERFLOW_ONE": (19, 19),
        "OFFSET_OVERFLOW_BADLY": (21, 21),
        "OFFSET_TOO_SMALL": (21, 21),
        "OFFSET_RESET": (21, 21),
    }


def test_an_expression_that_is_too_long_is_refused_and_not_kept() -> None:
    play = Play()
    for fields in ({"subscription": "a" * 16_385}, {"expression_type": "x" * 41}):
        answer = play.inline(**fields)
        assert refused(answer) == (23, 0)
        assert isinstance(answer, PullRefusal) and "are allowed" in answer.remark
    assert play.checks._expressions == {}


def test_a_pull_keeps_no_expression_that_is_not_looked_at() -> None:
    play = Play()
    play.online(Subscription("T", "B"))
    pull = frames.Pull(group="g", topic="T", subscription="x" * 100_000, expression_type="y" * 100_000)
    assert play.checks.wanted(pull) == frozenset({66})
    assert (pull.subscription, pull.expression_type) == (None, None)
