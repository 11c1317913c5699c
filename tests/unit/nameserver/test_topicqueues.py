"""Half a million topics are gone over in slices, and what changes in between counts."""

from __future__ import annotations

import pytest

from gantry.errors import Refusal
from gantry.model.topic import DataVersion, TopicConfig
from gantry.nameserver import topiclist
from gantry.nameserver.table import BrokerRegistration, RouteTable
from testkit.routetables import outcome_of


def many(name: str, counter: int = 1, count: int = 2500) -> BrokerRegistration:
    topics = {f"T{number}": TopicConfig(f"T{number}", 4, 4) for number in range(count)}
    return BrokerRegistration("C", name, 0, f"{name}:1", "h:2", topics, DataVersion(counter, 0, 5))


def perms_on(table: RouteTable, name: str) -> set[int]:
    return {table.topics.of(f"T{number}")[name].perm for number in range(2500)}


def test_a_changed_registration_amid_a_wipe_is_not_wiped_again() -> None:
    table = RouteTable()
    table.register(many("b-a"), "link", 0)
    table.register(many("b-b"), "other", 0)
    steps = table.wiping_write_perm("b-a")
    while perms_on(table, "b-a") == {6}:
        next(steps)
    table.register(many("b-a", counter=2), "link", 0)
    assert 0 < outcome_of(steps) < 2500
    assert perms_on(table, "b-a") == {6}, "it brought all of them again"
    assert outcome_of(table.wiping_write_perm("b-a")) == 2500
    assert (perms_on(table, "b-a"), perms_on(table, "b-b")) == ({4}, {6})


def test_topics_that_come_and_go_amid_a_list_make_no_other_topic_missing() -> None:
    table = RouteTable()
    table.register(many("b-a", count=50_000), "link", 0)
    table.register(many("b-b", count=1), "other", 0)
    steps = table.topics.all_topics()
    next(steps)
    for number in range(100):
        table.delete_topic(f"T{number}")
    table.register(many("b-b", counter=2, count=60_000), "other", 0)
    found = outcome_of(steps)
    assert set(found) == {f"T{number}" for number in range(60_000)} and len(found) == 60_000


def test_a_list_that_no_frame_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topiclist, "BYTES_MAX", 5000)
    table = RouteTable()
    table.register(many("b-a"), "link", 0)
    body = outcome_of(topiclist.topic_list(table, None))
    assert isinstance(body, Refusal) and "224" in body.remark
