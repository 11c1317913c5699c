from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gantry.leaves.frames import Command
from gantry.metadata import offsettable
from gantry.metadata.clients import Consumption, GroupClient
from gantry.metadata.offset_handlers import OffsetHandlers
from gantry.metadata.offsets import NOT_COMMITTED
from gantry.metadata.savedtogether import SavedTogether
from gantry.metadata.starts import GroupStarts
from gantry.model.subscription import CONSUME_ACTIVELY, CONSUME_PASSIVELY, CONSUME_POP, FROM_LAST_OFFSET
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import oneway
from testkit.pullplay import SMALL, PullPlay
from testkit.requests import answered, request


def offset_in(answer: Command) -> str | None:
    """The offset that an answer names."""
    return (answer.ext or {}).get("offset")


class Asking(PullPlay):
    """A pull play whose offsets are asked."""

    def __init__(self, young_bytes: int = 1 << 20) -> None:
        super().__init__(store=replace(SMALL))
        self.saves = 0
        self.is_kept = True
        starts = GroupStarts(self.offsets, self.topics, self.store, young_bytes)
        firsts = SavedTogether(lambda: self.offsets.firsts.count, self._save)
        about = self.offsets, self.topics, self.groups, starts, self.commits, firsts
        self.handlers = OffsetHandlers(*about, self.clients)
        self.groups.ensure("g")

    async def _save(self) -> bool:
        self.saves += 1
        if self.is_kept:
            self.offsets.firsts.saved(self.offsets.firsts.count)
        return self.is_kept

    def query(self, **fields: Any) -> Command:
        asked: dict[str, Any] = {"consumerGroup": "g", "topic": "T", "queueId": 0} | fields
        return answered(self.handlers.query(self.connection, request(RequestCode.QUERY_CONSUMER_OFFSET, **asked)))

    def update(self, **fields: Any) -> int:
        return self.told(**fields).code

    def told(self, **fields: Any) -> Command:
        told: dict[str, Any] = {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 7} | fields
        return answered(self.handlers.update(self.connection, request(RequestCode.UPDATE_CONSUMER_OFFSET, **told)))


def test_what_was_told_is_what_is_asked() -> None:
    play = Asking()
    play.send(*"abcdefg")
    assert play.update() == ResponseCode.SUCCESS
    answer = play.query()
    assert (answer.code, offset_in(answer)) == (0, "7")
    assert offset_in(play.query(setZeroIfNotFound="false")) == "7"


def test_the_answer_says_since_when_the_group_reads_the_topic() -> None:
    play = Asking()
    play.send("one")
    assert "gantryBegan" not in (play.query(setZeroIfNotFound="false").ext or {})
    began_ms = play.clock.now_ms()
    play.update(commitOffset=1)
    play.clock.advance(5000)
    for queue_id in (0, 1):
        answer = play.query(queueId=queue_id, setZeroIfNotFound="false")
        assert (answer.ext or {})["gantryBegan"] == str(began_ms)


def test_a_new_group_begins_at_the_first_message_of_a_young_queue() -> None:
    play = Asking()
    play.send("one")
    assert play.query().ext == {"offset": "0"}
    assert play.query(setZeroIfNotFound="true", consumerGroup="unknown").ext == {"offset": "0"}
    assert play.offsets.query("g", "T", 0) == 0
    assert play.offsets.query("unknown", "T", 0) == NOT_COMMITTED, "a group that does not exist gets no offsets"


def test_where_a_group_begins_is_not_stored_in_a_table_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question is a door to the table, like a commit."""
    monkeypatch.setattr(offsettable, "KEYS_MAX", 1)
    play = Asking()
    play.send("one")
    play.update(commitOffset=1)
    play.groups.ensure("other")
    assert play.query(consumerGroup="other").ext == {"offset": "0"}
    assert play.offsets.groups_of("T") == ["g"]


def test_unless_it_does_not_want_to() -> None:
    play = Asking()
    play.send("one")
    assert play.query(setZeroIfNotFound="false").code == ResponseCode.QUERY_NOT_FOUND


def test_a_new_group_does_not_skip_the_message_that_comes_behind_its_question() -> None:
    play = Asking()
    assert play.query().ext == {"offset": "0"}
    play.send("one")  # a client that was told "not found" would ask for the end only now
    assert offset_in(play.query()) == "0"


@pytest.mark.parametrize("nowhere", [{"topic": "unknown"}, {"queueId": 4}, {"queueId": -1}])
def test_what_is_no_queue_is_not_young(nowhere: dict[str, Any]) -> None:
    answer = Asking().query(**nowhere)
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert answer.remark


def test_a_queue_whose_first_message_is_far_from_the_end_is_not_young() -> None:
    play = Asking(young_bytes=1000)
    play.send("one")
    assert play.query().code == ResponseCode.SUCCESS
    play.send("x" * 1000, topic="other")
    assert play.query(consumerGroup="later").code == ResponseCode.QUERY_NOT_FOUND
    assert offset_in(play.query()) == "0", "where a group begins does not change any more"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"consumerGroup": "unknown"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": -1}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": 4}, ResponseCode.INVALID_PARAMETER),
        ({"commitOffset": -1}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_an_offset_of_nothing_is_refused_and_not_kept(fields: dict[str, Any], code: int) -> None:
    play = Asking()
    assert play.update(**fields) == code
    assert list(play.offsets.all()) == []
    assert play.offsets.query("g", "T", 0) == NOT_COMMITTED


def test_an_offset_may_be_set_back() -> None:
    play = Asking()
    play.send(*"abcdefg")
    play.update(commitOffset=7)
    assert play.update(commitOffset=3) == ResponseCode.SUCCESS
    assert offset_in(play.query()) == "3"


def test_the_first_offset_is_saved_before_it_is_answered_and_later_ones_are_not() -> None:
    play = Asking()
    play.send(*"abcdefg")
    play.update(commitOffset=1)
    assert play.saves == 1
    play.update(commitOffset=2)
    play.query()
    assert play.saves == 1
    play.update(commitOffset=0, queueId=1)
    assert play.saves == 2, "each queue has a first offset"
    play.query(queueId=2)
    assert play.saves == 3, "where the broker lets a group begin is its first offset too"


def test_what_could_not_be_saved_is_not_answered_nor_is_what_is_asked_then() -> None:
    play = Asking()
    play.send(*"abcdefg")
    play.is_kept = False
    assert play.update(commitOffset=1) == ResponseCode.SYSTEM_ERROR
    assert play.query().code == ResponseCode.SYSTEM_ERROR
    assert play.update(commitOffset=2) == ResponseCode.SYSTEM_ERROR
    play.is_kept = True
    assert offset_in(play.query()) == "2"


def test_what_has_begun_does_not_wait_for_another_groups_first_offset() -> None:
    play = Asking()
    play.send(*"abcdefg")
    play.update(commitOffset=1)
    play.groups.ensure("other")
    play.is_kept = False
    assert play.update(consumerGroup="other", commitOffset=1) == ResponseCode.SYSTEM_ERROR
    assert play.update(commitOffset=2) == ResponseCode.SUCCESS
    assert offset_in(play.query()) == "2"
    assert play.query(consumerGroup="other").code == ResponseCode.SYSTEM_ERROR


def test_a_one_way_commit_waits_for_no_save() -> None:
    """Nobody gets its answer, and while the disk hangs the commits of all groups would wait here."""
    play = Asking()
    play.send(*"abcdefg")
    fields = {"consumerGroup": "g", "topic": "T", "queueId": "0", "commitOffset": "1"}
    told = oneway(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    assert isinstance(play.handlers.update(play.connection, told), Command)
    assert play.offsets.query("g", "T", 0) == 1


def test_a_first_offset_does_not_replace_another_one_and_the_answer_names_what_stands() -> None:
    play = Asking()
    play.send(*"abcdefg")
    assert offset_in(play.told(commitOffset=3, gantryFirst="true")) == "3" and play.saves == 1
    play.is_kept = False
    assert offset_in(play.told(commitOffset=5, gantryFirst="true")) == "3", "it is durable"
    assert play.offsets.query("g", "T", 0) == 3
    assert play.update(commitOffset=5) == 0 and play.offsets.query("g", "T", 0) == 5, "a usual commit replaces it"
    assert play.told(commitOffset=9, gantryFirst="true", queueId=1).code == ResponseCode.INVALID_PARAMETER


def test_a_begin_that_stands_and_is_not_durable_is_not_answered() -> None:
    play = Asking()
    play.send(*"abcdefg")
    play.is_kept = False
    for begin in (3, 5):
        assert play.told(commitOffset=begin, gantryFirst="true").code == ResponseCode.SYSTEM_ERROR
    play.is_kept = True
    assert offset_in(play.told(commitOffset=5, gantryFirst="true")) == "3"


def test_the_begin_of_a_group_that_was_reset_is_where_it_was_reset_to() -> None:
    play = Asking()
    play.send(*"abcdefg")
    play.offsets.reset("g", "T", 0, 2, marks=True)
    assert offset_in(play.told(commitOffset=7, gantryFirst="true")) == "2"


def test_the_whole_table_comes_as_its_document() -> None:
    play = Asking()
    play.send(*"abcdefg")
    play.update()
    answer = answered(play.handlers.all(play.connection, request(RequestCode.GET_ALL_CONSUMER_OFFSET)))
    assert json.loads(answer.body)["offsetTable"] == {"T@g": {"0": 7}}


def beating(
    play: Asking, where: str = FROM_LAST_OFFSET, how: str = CONSUME_PASSIVELY, model: str = "CLUSTERING"
) -> None:
    """A member of the group says how it consumes."""
    member = GroupClient("c", 0, 0, 0.0)
    assert play.clients.register_consumer(play.connection, "g", member, Consumption(how, model, where), []) is None


def old(play: Asking) -> None:
    """Put the queue's first messages out of what counts as young."""
    play.send("a", "b", "c")
    play.send(*["." * 900] * 10, queue_id=1)


@pytest.mark.parametrize("how", [CONSUME_PASSIVELY, CONSUME_POP])
def test_members_that_begin_at_the_end_are_told_it_and_it_is_durable(how: str) -> None:
    play = Asking(young_bytes=10)
    old(play)
    beating(play, how=how)
    assert offset_in(play.query()) == "3" and play.saves == 1
    play.send("d")
    assert offset_in(play.query()) == "3", "another member, or the same one after a crash, begins there too"
    play.is_kept = False
    assert play.query(queueId=1).code == ResponseCode.SYSTEM_ERROR, "it cannot be saved"


@pytest.mark.parametrize(
    ("where", "how", "model"),
    [
        ("CONSUME_FROM_FIRST_OFFSET", CONSUME_PASSIVELY, "CLUSTERING"),
        ("CONSUME_FROM_TIMESTAMP", CONSUME_PASSIVELY, "CLUSTERING"),
        (FROM_LAST_OFFSET, CONSUME_ACTIVELY, "CLUSTERING"),
        (FROM_LAST_OFFSET, CONSUME_PASSIVELY, "BROADCASTING"),
    ],
)
def test_other_members_decide_where_they_begin(where: str, how: str, model: str) -> None:
    play = Asking(young_bytes=10)
    old(play)
    beating(play, where, how, model)
    assert play.query().code == ResponseCode.QUERY_NOT_FOUND and play.saves == 0


def test_a_question_for_what_is_stored_alone_stores_no_begin() -> None:
    play = Asking(young_bytes=10)
    old(play)
    beating(play)
    assert play.query(setZeroIfNotFound="false").code == ResponseCode.QUERY_NOT_FOUND
    assert play.query(queueId=7).code == ResponseCode.QUERY_NOT_FOUND and play.saves == 0
