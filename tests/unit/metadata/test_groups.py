from __future__ import annotations

import pytest

from gantry.errors import Refusal, StoreError
from gantry.metadata.groups import Groups, GroupSettings
from gantry.model.subscription import GroupConfig
from testkit.memory_state import MemoryState
from testkit.simclock import SimClock


def groups_of(state: MemoryState | None = None, settings: GroupSettings | None = None) -> Groups:
    return Groups(state or MemoryState(), SimClock(), settings or GroupSettings())


def test_the_groups_of_rocketmqs_tools_are_there_from_the_start() -> None:
    assert {config.name for config in groups_of().all()} == {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_RMQ_SYS_TRANS",
    }


def test_a_group_comes_to_be_when_it_is_first_asked_for() -> None:
    groups = groups_of()
    assert groups.get("orders") is None
    assert groups.retry_times_max("orders") is None
    assert groups.ensure("orders") == GroupConfig("orders")
    assert groups.ensure("orders") is groups.get("orders")
    assert groups.retry_times_max("orders") == 16


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "x" * 121])
def test_a_name_that_is_not_allowed_makes_no_group(name: str) -> None:
    assert groups_of().ensure(name) is None


def test_switched_off_only_system_groups_come_by_themselves() -> None:
    groups = groups_of(settings=GroupSettings(auto_create=False))
    assert groups.ensure("orders") is None
    assert groups.ensure("CID_RMQ_SYS_NEW") is not None


def test_the_table_is_bounded() -> None:
    groups = groups_of(settings=GroupSettings(groups_max=9))
    assert groups.ensure("one") is not None
    assert groups.ensure("two") is None
    assert isinstance(groups.put(GroupConfig("two")), Refusal)
    assert groups.put(GroupConfig("one", consume_enable=False)) is None


def test_only_changes_make_a_new_version() -> None:
    groups = groups_of()
    before = groups.data_version
    groups.put(GroupConfig("TOOLS_CONSUMER"))
    groups.ensure("TOOLS_CONSUMER")
    assert not groups.delete("orders")
    assert groups.data_version == before
    groups.put(GroupConfig("TOOLS_CONSUMER", retry_times_max=3))
    assert groups.data_version != before


def test_what_is_saved_is_rocketmqs_document_and_comes_back() -> None:
    state = MemoryState()
    groups = groups_of(state)
    groups.put(GroupConfig("orders", retry_times_max=3))
    groups.file.save_if_changed()
    groups.file.save_if_changed()
    assert state.saves == 1
    document = state.load()
    assert isinstance(document, dict)
    assert sorted(document) == ["dataVersion", "forbiddenTable", "subscriptionGroupTable"]
    table = document["subscriptionGroupTable"]
    assert isinstance(table, dict)
    assert table["orders"]["retryMaxTimes"] == 3
    again = groups_of(state)
    assert again.get("orders") == GroupConfig("orders", retry_times_max=3)
    assert again.data_version == groups.data_version


def test_a_deleted_group_is_gone_after_a_restart_too() -> None:
    state = MemoryState()
    groups = groups_of(state)
    groups.ensure("orders")
    assert groups.delete("orders")
    groups.file.save_if_changed()
    assert groups_of(state).get("orders") is None


def test_what_a_group_is_forbidden_is_kept_and_obeyed() -> None:
    state = MemoryState({"forbiddenTable": {"orders": {"secret": 4, "other": 2}}, "subscriptionGroupTable": {}})
    groups = groups_of(state)
    assert groups.forbids_reading("orders", "secret")
    assert not groups.forbids_reading("orders", "other")
    assert not groups.forbids_reading("orders", "plain")
    assert not groups.forbids_reading("others", "secret")
    assert groups.to_document()["forbiddenTable"] == {"orders": {"secret": 4, "other": 2}}


@pytest.mark.parametrize("document", [[], {"subscriptionGroupTable": 5}, {"forbiddenTable": {"g": {"t": "x"}}}])
def test_a_document_of_another_shape_is_named(document: object) -> None:
    with pytest.raises(StoreError, match=r"subscriptionGroup\.json"):
        groups_of(MemoryState(document))
