from __future__ import annotations

import json
from typing import Any

import pytest

from gantry.metadata.group_handlers import GroupHandlers
from gantry.metadata.groups import Groups, GroupSettings
from gantry.metadata.offsets import NOT_COMMITTED, Offsets
from gantry.model.subscription import GroupConfig
from gantry.wire.bodies import MalformedBodyError
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.fake_connection import FakeConnection
from testkit.memory_state import MemoryState
from testkit.requests import answered, request
from testkit.simclock import SimClock


class Play:
    """Handlers over real tables."""

    def __init__(self) -> None:
        self.state = MemoryState()
        self.groups = Groups(self.state, SimClock(), GroupSettings())
        self.offset_state = MemoryState()
        self.offsets = Offsets(self.offset_state, SimClock())
        self.handlers = GroupHandlers(self.groups, self.offsets)
        self.connection: Any = FakeConnection()

    def update(self, body: bytes | dict[str, object]) -> int:
        command = request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
        return self.handlers.update(self.connection, command).code

    def delete(self, **fields: Any) -> int:
        asked = request(RequestCode.DELETE_SUBSCRIPTIONGROUP, **fields)
        return answered(self.handlers.delete(self.connection, asked)).code


def test_a_group_is_made_as_asked_and_already_on_its_way_to_the_disk() -> None:
    play = Play()
    assert play.update({"groupName": "orders", "retryMaxTimes": 3, "consumeEnable": False}) == ResponseCode.SUCCESS
    assert play.groups.get("orders") == GroupConfig("orders", retry_times_max=3, consume_enable=False)
    document = play.state.load()
    assert document is not None
    assert "orders" in str(document["subscriptionGroupTable"])


@pytest.mark.parametrize(
    "body", [{}, {"groupName": "a b"}, {"groupName": "x" * 121}, {"groupName": "g", "retryQueueNums": -1}]
)
def test_what_cannot_be_a_group_is_refused(body: dict[str, object]) -> None:
    assert Play().update(body) == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize("body", [b"", b"[]", b'{"groupName":"g","retryMaxTimes":"many"}'])
def test_a_body_that_is_no_group_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedBodyError):
        Play().update(body)


def test_one_group_can_be_asked_for() -> None:
    play = Play()
    play.groups.ensure("orders")
    code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
    answer = play.handlers.get(play.connection, request(code, group="orders"))
    assert GroupConfig.from_json(json.loads(answer.body)) == GroupConfig("orders")
    answer = play.handlers.get(play.connection, request(code, group="others"))
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_all_groups_come_in_one_piece() -> None:
    play = Play()
    answer = answered(play.handlers.all(play.connection, request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)))
    body = json.loads(answer.body)
    assert set(body["subscriptionGroupTable"]) == {config.name for config in play.groups.all()}
    assert body["forbiddenTable"] == {}
    assert answer.ext["totalGroupNum"] == str(len(body["subscriptionGroupTable"])), "so no client asks on"


@pytest.mark.parametrize(("fields", "left"), [({}, 10), ({"cleanOffset": "true"}, NOT_COMMITTED)])
def test_a_deleted_group_loses_its_offsets_only_when_asked_to(fields: dict[str, str], left: int) -> None:
    play = Play()
    play.groups.ensure("orders")
    play.offsets.commit("orders", "T", 0, 10)
    assert play.delete(groupName="orders", **fields) == ResponseCode.SUCCESS
    assert play.groups.get("orders") is None
    assert play.offsets.query("orders", "T", 0) == left


def test_deleting_what_is_gone_is_no_error() -> None:
    assert Play().delete(groupName="orders") == ResponseCode.SUCCESS


@pytest.mark.parametrize("fields", [{}, {"cleanOffset": "true"}])
def test_where_in_the_log_a_group_was_deleted_is_saved_before_the_groups(fields: dict[str, str]) -> None:
    play = Play()
    play.groups.ensure("workers")
    play.groups.file.save_now()
    play.groups.on_change(lambda name: play.offsets.place_reset(f"@{name}"))
    saves, save = play.state.saves, play.state.save

    def save_groups(table: Any) -> None:
        document = play.offset_state.load()
        assert document is not None and document["gantryResets"] == {"@workers": {"0": 0}}
        save(table)

    play.state.save = save_groups  # type: ignore[method-assign]
    assert play.delete(groupName="workers", **fields) == ResponseCode.SUCCESS
    assert play.state.saves == saves + 1
