"""Groups that are sent elsewhere, with members that wait, members at work, and none."""

from __future__ import annotations

from typing import Any

import pytest

from gantry.consume.resets import ResetHandlers
from gantry.leaves.frames import Command
from gantry.metadata.clients import Consumption, GroupClient
from gantry.model.subscription import Subscription
from gantry.wire import bodies
from gantry.wire.codes import Language, RequestCode, ResponseCode
from testkit.fake_connection import FakeConnection
from testkit.offsetbody import body_of
from testkit.pullplay import PullPlay, codes_of, offsets_of
from testkit.requests import answered, request

SUSPEND_INLINE = 6
COMMIT = 1


class Resetting(PullPlay):
    """A pull play with ten messages, one a second, in queue 0 of topic T, and a group g."""

    def __init__(self) -> None:
        super().__init__()
        self.handlers = ResetHandlers(
            self.store, self.offsets, self.topics, self.groups, self.clients, self.pulls.held, "b"
        )
        self.groups.ensure("g")
        self.begin_ms = self.clock.now_ms()
        for number in range(10):
            self.send(f"m{number}")
            self.clock.advance(1000)

    def reset(self, language: int = Language.JAVA, **fields: Any) -> Command:
        asked: dict[str, Any] = {"group": "g", "topic": "T", "timestamp": self.begin_ms, "isForce": "true"} | fields
        command = request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **asked)
        command.language = language
        return answered(self.handlers.reset(self.connection, command))

    def member(self, language: int = Language.JAVA, version: int = 479, model: str = "CLUSTERING") -> Any:
        """A consumer comes online, on a connection of its own."""
        connection: Any = FakeConnection(f"10.0.0.7:{len(self.clients.consumers('g'))}")
        self.clients.register_consumer(
            connection,
            "g",
            GroupClient(f"c{connection.peer}", language, version, 0.0),
            Consumption("CONSUME_PASSIVELY", model, "CONSUME_FROM_LAST_OFFSET"),
            [Subscription("T")],
        )
        return connection

    def committed(self, queue_id: int = 0) -> int:
        return self.offsets.query("g", "T", queue_id)


def table(command: Command) -> dict[int, int]:
    """Queue id -> offset, of either form of the body."""
    found = bodies.loads_object(command.body)["offsetTable"]
    if isinstance(found, list):
        return {row["queueId"]: row["offset"] for row in found}
    assert isinstance(found, dict)
    return {int(str(bodies.loads_object(key.encode())["queueId"])): offset for key, offset in found.items()}


def test_a_group_that_nobody_is_in_goes_on_at_the_time_in_every_queue() -> None:
    play = Resetting()
    play.offsets.commit("g", "T", 0, 10)
    answer = play.reset(timestamp=play.begin_ms + 4000)
    assert (answer.code, table(answer)) == (0, {0: 4, 1: 0, 2: 0, 3: 0})
    assert play.committed() == 4
    assert not play.offsets.marks


def test_the_body_has_queues_as_keys_as_java_reads_them() -> None:
    answer = Resetting().reset(queueId=0, offset=3)
    assert answer.body == b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:3}}'


def test_a_cpp_tool_gets_a_list() -> None:
    answer = Resetting().reset(queueId=0, offset=3, language=Language.CPP)
    assert bodies.loads(answer.body) == {"offsetTable": [{"brokerName": "b", "offset": 3, "queueId": 0, "topic": "T"}]}


def test_minus_one_is_the_end() -> None:
    play = Resetting()
    assert table(play.reset(timestamp=-1))[0] == 10


def test_without_force_nobody_skips_a_message() -> None:
    play = Resetting()
    play.offsets.commit("g", "T", 0, 5)
    assert table(play.reset(timestamp=-1, isForce="false"))[0] == 5
    assert table(play.reset(isForce="false"))[0] == 0
    assert play.committed() == 0


def test_a_pull_that_waits_is_told_at_once_and_not_again() -> None:
    play = Resetting()
    connection = play.member()
    play.connection = connection
    assert play.pull(10, sys_flag=SUSPEND_INLINE) == []
    play.reset(queueId=0, offset=4)
    [moved] = play.replies()
    assert (moved.code, offsets_of(moved)) == (ResponseCode.PULL_OFFSET_MOVED, (4, 0, 10))
    assert codes_of(play.pull(4)) == [ResponseCode.SUCCESS]
    assert not play.offsets.marks


def test_a_member_at_work_is_sent_a_request_and_believed_when_it_pulls_there() -> None:
    play = Resetting()
    connection = play.member()
    play.reset(queueId=0, offset=4)
    [told] = connection.take()
    assert (told.code, told.is_oneway, table(told)) == (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, True, {0: 4})
    assert (told.ext["group"], told.ext["topic"]) == ("g", "T")
    play.offsets.commit("g", "T", 0, 9)
    assert play.committed() == 4, "it spoke of what was before"
    assert codes_of(play.pull(4)) == [ResponseCode.SUCCESS]
    play.offsets.commit("g", "T", 0, 7)
    assert play.committed() == 7


def test_a_member_that_does_not_know_the_request_is_moved_by_its_next_pull() -> None:
    play = Resetting()
    connection = play.member(version=10)
    play.reset(queueId=0, offset=4)
    assert connection.take() == []
    [moved] = play.pull(9, sys_flag=SUSPEND_INLINE | COMMIT, commit_offset=9)
    assert (moved.code, offsets_of(moved)[0]) == (ResponseCode.PULL_OFFSET_MOVED, 4)
    assert play.committed() == 4


def test_each_member_is_told_in_its_own_language() -> None:
    play = Resetting()
    java, cpp = play.member(), play.member(language=Language.CPP)
    play.reset(queueId=0, offset=4)
    assert [table(one.take()[0]) for one in (java, cpp)] == [{0: 4}, {0: 4}]
    assert cpp.output != java.output and b'"offset":4' in cpp.output


def test_members_of_a_broadcasting_group_are_all_told_and_no_pull_is_turned_away() -> None:
    play = Resetting()
    members = [play.member(model="BROADCASTING") for _ in range(2)]
    play.reset(queueId=0, offset=4)
    assert [len(one.take()) for one in members] == [1, 1]
    assert codes_of(play.pull(9)) == [ResponseCode.SUCCESS]


def test_a_mark_survives_a_restart() -> None:
    play = Resetting()
    play.member()
    play.reset(queueId=0, offset=4)
    assert bodies.loads_object(bodies.dumps(body_of(play.offsets)))["resetOffsetTable"] == {"T@g": {"0": 4}}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "missing"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"group": "missing"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"queueId": 4, "offset": 0}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": 0, "offset": 12}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_what_is_not_there_is_refused_and_changes_nothing(fields: dict[str, Any], code: int) -> None:
    play = Resetting()
    answer = play.reset(**fields)
    assert (answer.code, bool(answer.remark)) == (code, True)
    assert list(play.offsets.all()) == []


def test_one_behind_the_end_is_the_end() -> None:
    play = Resetting()
    assert table(play.reset(queueId=0, offset=11)) == {0: 10}
