from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from gantry.consume.lookups import LookupHandlers
from gantry.leaves.frames import Command
from gantry.store import keysearch
from gantry.store.indexfile import WALKED_AT_ONCE
from gantry.store.settings import MIB
from gantry.wire import headers
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.headers import HeaderError
from testkit.patience import HANG_S
from testkit.pullplay import SMALL, PullPlay, bodies_of
from testkit.requests import answered, request
from testkit.simclock import SKEWS_MS

FOREVER = {"beginTimestamp": 0, "endTimestamp": 2**63 - 1}


class Asking(PullPlay):
    """A pull play whose look-ups are asked."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.lookups = LookupHandlers(self.store, self.clock)

    def index_all(self) -> None:
        """Have the log flushed and its keys moved into the index file."""
        for _ in range(20):
            self.clock.advance(1000)
            self.store.tick(self.clock.now_ms())

    def ask(self, code: RequestCode, **fields: Any) -> Command:
        handler = {
            RequestCode.QUERY_MESSAGE: self.lookups.query,
            RequestCode.VIEW_MESSAGE_BY_ID: self.lookups.view,
            RequestCode.GET_MAX_OFFSET: self.lookups.max_offset,
            RequestCode.GET_MIN_OFFSET: self.lookups.min_offset,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.lookups.search_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.lookups.earliest_store_time,
        }[code]
        answer = answered(handler(self.connection, request(code, **fields)))
        if (
            answer.code in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
            and code != RequestCode.VIEW_MESSAGE_BY_ID
        ):
            headers.parse_reply(code, answer.ext)
        return answer

    def number(self, code: RequestCode, name: str = "offset", **fields: Any) -> int:
        return int(self.ask(code, **({"topic": "T", "queueId": 0} | fields)).ext[name])

    def query(self, key: str, **fields: Any) -> Command:
        return self.ask(RequestCode.QUERY_MESSAGE, **({"topic": "T", "key": key, "maxNum": 32} | FOREVER | fields))


def test_the_ends_of_a_queue() -> None:
    play = Asking()
    play.send("one", "two")
    assert play.number(RequestCode.GET_MAX_OFFSET) == 2
    assert play.number(RequestCode.GET_MIN_OFFSET) == 0


def test_an_unknown_queue_has_rocketmqs_numbers() -> None:
    play = Asking()
    assert play.number(RequestCode.GET_MAX_OFFSET, topic="missing") == 0
    assert play.number(RequestCode.GET_MIN_OFFSET, queueId=3) == 0
    assert play.number(RequestCode.GET_MIN_OFFSET, topic="missing") == 0
    assert play.number(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=5) == 0
    assert play.number(RequestCode.GET_EARLIEST_MSG_STORETIME, "timestamp") == -1


def test_a_moment_is_found_in_a_queue() -> None:
    play = Asking()
    begin = play.clock.now_ms()
    for body in ("one", "two", "three"):
        play.send(body)
        play.clock.advance(1000)

    def at(milliseconds: int, **fields: Any) -> int:
        return play.number(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=begin + milliseconds, **fields)

    assert [at(moment) for moment in (-1, 0, 1, 1000, 2000, 2001)] == [0, 0, 1, 1, 2, 3]
    assert [at(moment, boundaryType="UPPER") for moment in (0, 999, 1000)] == [0, 0, 1]
    assert at(1000, boundaryType="upper") == 1
    assert play.number(RequestCode.GET_EARLIEST_MSG_STORETIME, "timestamp") == begin


def test_messages_are_found_by_their_keys() -> None:
    play = Asking()
    play.send("one", keys="k1 k2")
    play.send("two", keys="k2")
    play.send("other topic", topic="U", keys="k2")
    assert bodies_of(play.query("k1").body) == ["one"]
    assert sorted(bodies_of(play.query("k2").body)) == ["one", "two"]
    assert len(bodies_of(play.query("k2", maxNum=1).body)) == 1
    assert len(bodies_of(play.query("k2", maxNum=-1).body)) == 1


def steps_of(answer: Coroutine[Any, Any, Command]) -> tuple[int, Command]:
    """How often a handler gave way before it answered."""
    for steps in itertools.count():
        try:
            answer.send(None)
        except StopIteration as end:
            found: Command = end.value
            return steps, found
    raise AssertionError


def test_a_key_of_a_thousand_later_messages_is_found_in_steps() -> None:
    play = Asking(store=replace(SMALL, index_entries=5000))
    early = play.clock.now_ms()
    play.send("one", keys="k")
    play.clock.advance(10_000)
    play.send(*["later"] * 1000, keys="k")
    wanted = request(RequestCode.QUERY_MESSAGE, topic="T", key="k", maxNum=32, beginTimestamp=0, endTimestamp=early)
    play.index_all()
    steps, answer = steps_of(play.lookups.query(play.connection, wanted))
    assert (bodies_of(answer.body), answer.remark) == (["one"], "")
    assert steps >= 1000 // WALKED_AT_ONCE


def test_a_walk_that_ends_early_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keysearch, "STEPS_MAX", 10)
    play = Asking(store=replace(SMALL, index_entries=5000))
    early = play.clock.now_ms()
    play.send("other", keys="other")
    play.clock.advance(10_000)
    play.send(*["one"] * 1000, keys="k")
    play.index_all()
    found = play.query("k", endTimestamp=early)
    assert (found.code, (found.remark or "").partition(";")[2]) == (
        ResponseCode.QUERY_NOT_FOUND,
        " ask for an earlier time range, or read the topic",
    )
    monkeypatch.setattr(keysearch, "_HITS_AT_ONCE", 1)
    found = play.query("k", maxNum=64)
    assert (found.code, len(bodies_of(found.body))) == (ResponseCode.SUCCESS, 9)
    assert "ask for an earlier time range" in (found.remark or "")


async def test_what_is_cold_is_read_elsewhere_before_it_is_shown() -> None:
    play = Asking(store=replace(SMALL, warm_bytes=1))
    offset, *_ = play.send("one", "two", keys="k")
    wanted = request(RequestCode.QUERY_MESSAGE, topic="T", key="k", maxNum=32, **FOREVER)
    shown = request(RequestCode.VIEW_MESSAGE_BY_ID, offset=offset)

    async def read(answer: Coroutine[Any, Any, Command]) -> tuple[int, set[str]]:
        reads, task = 0, asyncio.ensure_future(answer)
        async with asyncio.timeout(HANG_S):
            while not task.done():
                await asyncio.sleep(0)
                reads += play.cold.step()
        return reads, set(bodies_of(task.result().body))

    assert await read(play.lookups.query(play.connection, wanted)) == (2, {"one", "two"})
    assert await read(play.lookups.view(play.connection, shown)) == (2, {"one"})


def test_a_unique_key_is_found_whatever_number_was_asked_for() -> None:
    play = Asking()
    play.send("one", "two")
    answer = play.query("uniq", maxNum=1, _UNIQUE_KEY_QUERY="true")
    assert sorted(bodies_of(answer.body)) == ["one", "two"]


@pytest.mark.parametrize("ahead_ms", SKEWS_MS)
def test_a_unique_key_is_found_whatever_the_producer_s_clock_is(ahead_ms: int) -> None:
    """Clients ask from the time in the id on, which is of the producer's clock."""
    play = Asking()
    play.send("one")
    begin_ms = play.clock.now_ms() + ahead_ms - 1000
    for limits in ({"beginTimestamp": begin_ms}, {"beginTimestamp": 0, "endTimestamp": begin_ms}):
        answer = play.query("uniq", _UNIQUE_KEY_QUERY="true", **limits)
        assert bodies_of(answer.body) == ["one"]


def test_what_no_message_has_is_not_found() -> None:
    play = Asking()
    play.send("one", keys="k1")
    for answer in (play.query("k3"), play.query("k1", topic="U"), play.query("k1", endTimestamp=5)):
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        assert answer.remark


def test_hits_of_many_megabytes_come_as_far_as_they_fit_a_frame() -> None:
    play = Asking(store=replace(SMALL, segment_bytes=32 * MIB))
    for _ in range(6):
        play.send("x" * 3_000_000, keys="k")
    found = bodies_of(play.query("k").body)
    assert len(found) == 2
    assert all(len(body) == 3_000_000 for body in found)


def test_a_record_is_shown_by_its_log_offset() -> None:
    play = Asking()
    _, second = play.send("one", "two")
    answer = play.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=second)
    assert bodies_of(answer.body) == ["two"]


@pytest.mark.parametrize("offset", [-1, 1, 10**6, 2**63 - 1])
def test_an_offset_at_which_no_record_begins_shows_nothing(offset: int) -> None:
    play = Asking()
    play.send("one")
    answer = play.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=offset)
    assert (answer.code, answer.remark) == (1, f"can not find message by the offset, {offset}")


def test_a_record_faked_inside_a_body_is_not_shown() -> None:
    play = Asking()
    (offset,) = play.send("one")
    record = play.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=offset).body
    fake = bytearray(record)
    (carrier,) = play.send("y" * len(record))
    at = carrier + 88
    fake[28:36] = at.to_bytes(8, "big")
    # The body cannot know its own log offset in advance; the test writes it where a lucky guess would have put it.
    again = Asking()
    again.send("one")
    (carrier_again,) = again.send(bytes(fake))
    assert carrier_again == carrier
    assert again.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=at).code == ResponseCode.SYSTEM_ERROR


def test_a_missing_field_is_named() -> None:
    with pytest.raises(HeaderError, match="queueId"):
        Asking().ask(RequestCode.GET_MAX_OFFSET, topic="T")
