from __future__ import annotations

import pytest

from gantry.errors import Refusal, StoreError
from gantry.metadata.topics import Topics, TopicSettings
from gantry.model.topic import PERM_INHERIT, TopicConfig
from gantry.wire.codes import ResponseCode
from testkit.memory_state import MemoryState
from testkit.simclock import SimClock

SETTINGS = TopicSettings("broker-a", "DefaultCluster")


def topics_of(state: MemoryState | None = None, settings: TopicSettings = SETTINGS) -> Topics:
    return Topics(state or MemoryState(), SimClock(), settings)


def test_the_topics_that_rocketmq_always_has_are_there_from_the_start() -> None:
    topics = topics_of()
    found = {config.name: (config.read_queues, config.write_queues, config.perm) for config in topics.all()}
    assert found == {
        "SELF_TEST_TOPIC": (1, 1, 6),
        "TBW102": (8, 8, 7),
        "BenchmarkTest": (1024, 1024, 6),
        "DefaultCluster": (16, 16, 7),
        "broker-a": (1, 1, 7),
        "OFFSET_MOVED_EVENT": (1, 1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
        "DefaultCluster_REPLY_TOPIC": (1, 1, 6),
        "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 8, 6),
        "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1, 1),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 1, 6),
        "rmq_sys_wheel_timer": (1, 1, 6),
    }
    assert all(topics.is_system(name) for name in topics.names())


def test_the_trace_topic_is_made_only_when_wanted() -> None:
    assert topics_of().get("RMQ_SYS_TRACE_TOPIC") is None
    wanted = TopicSettings("b", "c", has_trace_topic=True)
    assert topics_of(settings=wanted).get("RMQ_SYS_TRACE_TOPIC") is not None


def test_a_stock_client_gets_four_queues_and_no_inheritance() -> None:
    topics = topics_of()
    assert topics.auto_create("orders", "TBW102", 4, unit_mode=False) == TopicConfig(
        "orders", read_queues=4, write_queues=4, perm=6
    )
    assert topics.get("orders") is not None


@pytest.mark.parametrize(("asked", "made"), [(1, 1), (4, 4), (8, 8), (100, 8), (0, 1), (-3, 1)])
def test_the_template_bounds_the_queues_and_there_is_always_one(asked: int, made: int) -> None:
    config = topics_of().auto_create("orders", "TBW102", asked, unit_mode=False)
    assert isinstance(config, TopicConfig)
    assert (config.read_queues, config.write_queues) == (made, made)


def test_an_existing_topic_is_what_a_second_send_gets() -> None:
    topics = topics_of()
    first = topics.auto_create("orders", "TBW102", 4, unit_mode=False)
    version = topics.data_version
    assert topics.auto_create("orders", "TBW102", 2, unit_mode=False) is first
    assert topics.data_version == version


@pytest.mark.parametrize("template", ["BenchmarkTest", "missing", ""])
def test_without_a_template_to_inherit_there_is_no_topic(template: str) -> None:
    topics = topics_of()
    refusal = topics.auto_create("orders", template, 4, unit_mode=False)
    assert isinstance(refusal, Refusal)
    assert refusal.code == ResponseCode.TOPIC_NOT_EXIST
    assert topics.get("orders") is None


def test_switched_off_nothing_is_made_after_tbw102_even_if_an_old_document_has_it() -> None:
    state = MemoryState()
    topics_of(state).file.save_if_changed()
    off = topics_of(state, TopicSettings("broker-a", "DefaultCluster", auto_create=False))
    assert isinstance(off.auto_create("orders", "TBW102", 4, unit_mode=False), Refusal)
    fresh = topics_of(settings=TopicSettings("broker-a", "DefaultCluster", auto_create=False))
    assert fresh.get("TBW102") is None


def test_unit_mode_marks_the_topic_as_its_kind_demands() -> None:
    topics = topics_of()
    plain = topics.auto_create("orders", "TBW102", 4, unit_mode=True)
    retry = topics.auto_create("%RETRY%g", "TBW102", 4, unit_mode=True)
    assert isinstance(plain, TopicConfig)
    assert isinstance(retry, TopicConfig)
    assert (plain.sys_flag, retry.sys_flag) == (1, 2)


def test_the_table_is_bounded() -> None:
    topics = topics_of(settings=TopicSettings("b", "c", topics_max=14))
    assert isinstance(topics.auto_create("one", "TBW102", 4, unit_mode=False), TopicConfig)
    assert isinstance(topics.auto_create("two", "TBW102", 4, unit_mode=False), Refusal)
    assert isinstance(topics.put(TopicConfig("two")), Refusal)
    assert topics.put(TopicConfig("one", perm=4)) is None


def test_every_change_is_a_new_version_and_news_and_nothing_else_is() -> None:
    topics = topics_of()
    news: list[str] = []
    topics.on_change(news.append)
    versions = [topics.data_version]

    def version_moved() -> bool:
        versions.append(topics.data_version)
        return versions[-1] != versions[-2]

    topics.put(TopicConfig("orders"))
    assert version_moved()
    topics.put(TopicConfig("orders"))
    assert not version_moved()
    topics.put(TopicConfig("orders", perm=4))
    assert version_moved()
    topics.ensure(TopicConfig("orders"))
    assert not version_moved()
    topics.ensure(TopicConfig("%RETRY%g"))
    assert version_moved()
    topics.delete("orders")
    assert version_moved()
    topics.delete("orders")
    assert not version_moved()
    assert news == ["orders", "orders", "%RETRY%g", "orders"]


def test_ensure_gives_back_what_stands() -> None:
    topics = topics_of()
    topics.put(TopicConfig("%RETRY%g", read_queues=3))
    assert topics.ensure(TopicConfig("%RETRY%g", read_queues=1)).read_queues == 3


def test_a_deletion_is_told_to_those_who_keep_something_for_the_topic() -> None:
    topics = topics_of()
    told: list[tuple[str, str, bool]] = []
    topics.put(TopicConfig("orders"))
    topics.on_change(lambda name: told.append(("change", name, topics.get(name) is None)))
    topics.on_delete(lambda topic: told.append(("delete", topic.name, topics.get(topic.name) is None)))
    assert topics.delete("orders")
    assert told == [("delete", "orders", True), ("change", "orders", True)]


def test_what_is_saved_is_rocketmqs_document_and_comes_back() -> None:
    state = MemoryState()
    topics = topics_of(state)
    topics.put(TopicConfig("orders", read_queues=2, attributes={"message.type": "FIFO"}))
    topics.file.save_if_changed()
    document = state.load()
    assert isinstance(document, dict)
    assert sorted(document) == ["dataVersion", "topicConfigTable"]
    table = document["topicConfigTable"]
    assert isinstance(table, dict)
    assert table["orders"] == {
        "attributes": {"message.type": "FIFO"},
        "order": False,
        "perm": 6,
        "readQueueNums": 2,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "orders",
        "topicSysFlag": 0,
        "writeQueueNums": 16,
    }
    again = topics_of(state)
    assert again.get("orders") == topics.get("orders")
    assert again.data_version == topics.data_version


def test_nothing_is_saved_when_nothing_changed() -> None:
    state = MemoryState()
    topics = topics_of(state)
    topics.file.save_if_changed()
    topics.file.save_if_changed()
    assert state.saves == 1
    topics_of(state).file.save_if_changed()
    assert state.saves == 1


def test_what_the_document_says_of_a_system_topic_stands() -> None:
    template = TopicConfig("TBW102", read_queues=2, write_queues=2, perm=6 | PERM_INHERIT)
    state = MemoryState({"topicConfigTable": {"TBW102": template.to_json()}})
    assert topics_of(state).get("TBW102") == template


@pytest.mark.parametrize(
    "document", [[], {"topicConfigTable": []}, {"topicConfigTable": {"T": 5}}, {"dataVersion": {"counter": "x"}}]
)
def test_a_document_of_another_shape_is_named(document: object) -> None:
    with pytest.raises(StoreError, match=r"topics\.json"):
        topics_of(MemoryState(document))


def test_registrations_carry_the_empty_tables_of_static_topics() -> None:
    body = topics_of().head()
    assert body["topicQueueMappingDetailMap"] == {}
    assert body["topicQueueMappingInfoMap"] == {}
    assert body["mappingDataVersion"] == {"counter": 0, "stateVersion": 0, "timestamp": 0}


def test_a_topic_whose_messages_outlived_its_document_is_made_again() -> None:
    topics = topics_of()
    topics.put(TopicConfig("bills", read_queues=2, write_queues=2))
    there = [("orders", 0), ("orders", 6), ("bills", 1), ("few", 0), ("%RETRY%group", 0), ("%DLQ%group", 0)]
    assert topics.adopt(there) == [
        "orders",
        "few",
        "%RETRY%group",
        "%DLQ%group",
    ]
    made = {name: topics.get(name) for name in ("orders", "few", "%RETRY%group", "%DLQ%group", "bills")}
    assert {name: config.write_queues for name, config in made.items() if config is not None} == {
        "orders": 7,
        "few": 4,
        "%RETRY%group": 1,
        "%DLQ%group": 1,
        "bills": 2,
    }


def test_the_file_lists_topics_by_name_whatever_was_made_changed_and_deleted() -> None:
    state = MemoryState()
    topics = topics_of(state)
    for name in ("m", "c", "x", "a"):
        topics.put(TopicConfig(name))
    topics.put(TopicConfig("c", 7, 7))
    topics.delete("m")
    topics.file.save_if_changed()
    saved = state.load()
    assert saved is not None
    table = saved["topicConfigTable"]
    assert isinstance(table, dict) and list(table) == sorted(topics.names())
    assert (table["c"]["readQueueNums"], "m" in table) == (7, False)
    assert sorted(topics_of(state).names()) == sorted(topics.names())
