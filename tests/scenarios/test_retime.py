"""Another time for a delayed message: by its handle, over restarts, and when the old time comes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from typing import cast

import pytest

from gantry.leaves import properties
from gantry.leaves.frames import Command
from gantry.schedule import handlers, handles
from gantry.store.settings import Flush
from testkit.delayplay import DelayPlay, Sent
from testkit.queueplay import QueuePlay

RECALL, RETIME = 370, 24044
DAY_MS = 86_400_000


def retimed(play: DelayPlay, handle: str, delay_ms: int) -> str:
    answer = play.ask(RETIME, topic="orders", recallHandle=handle, delayMs=delay_ms)
    assert answer.code == 0, answer.remark
    return answer.ext["recallHandle"]


def waiting(play: DelayPlay, delay_ms: int, body: bytes = b"x") -> Sent:
    sent = play.send(body, TIMER_DELAY_MS=str(delay_ms))
    play.flush()
    play.topics.file.save_if_changed()
    due_ms = play.clock.now_ms() + delay_ms
    return sent._replace(handle=handles.encode(handles.Handle("orders", "b", due_ms, sent.key)))


@pytest.mark.parametrize("stop", ["", "reopen", "kill", "crash"])
@pytest.mark.parametrize(("first_ms", "second_ms"), [(5_000, 500), (500, 5_000), (50_000, 500), (20_000, 120_000)])
def test_a_message_comes_at_its_new_time_and_once(first_ms: int, second_ms: int, stop: str) -> None:
    play = DelayPlay(Flush.SYNC if stop == "crash" else Flush.ASYNC)
    other = waiting(play, 300_000, b"other")  # before the other one, so that a start reads the queue from here on
    sent = waiting(play, first_ms)
    play.tick()
    retimed(play, sent.handle, second_ms)
    if stop:
        getattr(play, stop)()
    play.pass_ms(second_ms - 10)
    assert play.visible() == []
    play.pass_ms(20)
    play.flush()
    assert play.visible() == [b"x"]
    for _ in range(2):
        play.tick()
        play.flush()
    if stop:
        getattr(play, stop)()
    play.pass_ms(first_ms + 20)
    play.flush()
    assert play.visible() == [b"x"]
    retimed(play, other.handle, 10)
    play.pass_ms(50)
    play.flush()
    assert play.visible() == [b"x", b"other"]
    assert play.service.pending == 0


def test_a_new_handle_works_and_each_former_one_is_void_also_at_the_same_time() -> None:
    play = DelayPlay()
    given = [waiting(play, 5_000).handle]
    for delay_ms in (9_000, 5_000, 5_000):
        given.append(retimed(play, given[-1], delay_ms))
    assert len(set(given)) == 4
    for handle in given[:-1]:
        assert play.ask(RETIME, topic="orders", recallHandle=handle, delayMs=1).code == 604
        assert play.ask(RECALL, topic="orders", recallHandle=handle).code == 604
    play.reopen()
    assert play.ask(RETIME, topic="orders", recallHandle=given[0], delayMs=1).code == 604
    assert play.ask(RECALL, topic="orders", recallHandle=given[-1]).code == 0
    assert play.ask(RETIME, topic="orders", recallHandle=given[-1], delayMs=1).code == 604
    play.pass_ms(20_000)
    assert play.visible() == []


def test_a_delay_of_nothing_delivers_at_once_and_has_no_handle() -> None:
    play = DelayPlay()
    assert retimed(play, waiting(play, 5_000).handle, 0) == ""
    play.pass_ms(20)
    assert play.visible() == [b"x"]


def test_what_was_delivered_gets_no_other_time() -> None:
    play = DelayPlay()
    handle = waiting(play, 500).handle
    play.pass_ms(600)
    assert play.ask(RETIME, topic="orders", recallHandle=handle, delayMs=500).code == 604
    play.clock.jump(-10_000)
    assert play.ask(RETIME, topic="orders", recallHandle=handle, delayMs=500).code == 604
    play.pass_ms(20_000)
    assert play.visible() == [b"x"]


def test_the_message_stays_the_same() -> None:
    play = DelayPlay()
    sent = play.send(b"x", TIMER_DELAY_MS="5000", KEYS="k", TAGS="t", queue_id=2)
    play.flush()
    born_ms = play.clock.now_ms()
    play.clock.advance(1_000)
    handle = retimed(play, retimed(play, sent.handle, 700), 900)
    assert handles.decode(handle) == handles.Handle("orders", "b", play.clock.now_ms() + 900, sent.key, 2)
    play.pass_ms(1_000)
    (record,) = play.records()
    pairs = properties.parse(record.properties)
    assert (record.queue_id, record.born_ms, record.body) == (2, born_ms, b"x")
    assert (pairs["UNIQ_KEY"], pairs["KEYS"], pairs["TAGS"]) == (sent.key, "k", "t")


@pytest.mark.parametrize(
    ("ext", "code"),
    [
        ({"delayMs": -1}, 29),
        ({"delayMs": 3 * 86_400_000 + 1}, 29),
        ({"topic": "nobody"}, 17),
        ({"recallHandle": "x"}, 604),
        ({"recallHandle": handles.encode(handles.Handle("orders", "other", 1, "k"))}, 604),
    ],
)
def test_bad_requests_are_refused_and_change_nothing(ext: dict[str, str | int], code: int) -> None:
    play = DelayPlay()
    handle = waiting(play, 500).handle
    given: dict[str, str | int] = {"topic": "orders", "recallHandle": handle, "delayMs": 100}
    assert play.ask(RETIME, **given | ext).code == code
    play.pass_ms(600)
    assert play.visible() == [b"x"]


def test_nobody_replaces_the_message_of_another_one_by_a_property() -> None:
    play = DelayPlay()
    waiting(play, 5_000, b"mine")
    play.send(b"theirs", TIMER_DELAY_MS="900", GANTRY_RETIMED=f"0 {play.clock.now_ms() + 5_000} 1")
    play.flush()
    play.reopen()
    play.pass_ms(6_000)
    assert play.visible() == [b"theirs", b"mine"]


def test_after_a_power_cut_at_any_record_the_message_has_one_time() -> None:
    seen = set()
    for seed in range(60):
        rng = random.Random(seed)
        play = DelayPlay(Flush.SYNC)
        early, late = waiting(play, 2_000, b"early"), waiting(play, 8_000, b"late")
        for handle, delay_ms in ((early.handle, 8_000), (late.handle, 2_000)):
            command = play.command(RETIME, topic="orders", recallHandle=handle, delayMs=delay_ms)
            assert play.handlers.retime(play.connection, command) is None  # type: ignore[arg-type]
            for _ in range(rng.randint(0, 2)):
                play.background.step()
        play.crash(rng)
        for _ in range(rng.randint(0, 1)):
            play.crash(rng)
        play.pass_ms(4_000)
        play.flush()
        middle = play.visible()
        play.pass_ms(8_000)
        play.flush()
        assert sorted(play.visible()) == [b"early", b"late"], f"seed {seed}"
        seen.add(tuple(sorted(middle)))
    assert {(b"late",), (b"early",)} <= seen, "the power never goes between"


@pytest.mark.parametrize("is_earlier", [True, False])
def test_a_retimed_message_is_carried_on_with_its_new_time(is_earlier: bool) -> None:
    play = DelayPlay(segment_bytes=1 << 16)
    far = [waiting(play, 400_000, b"far%d" % number) for number in range(3)]
    handle = retimed(play, far[0].handle, 300_000 if is_earlier else 500_000)
    play.ask(RECALL, topic="orders", recallHandle=far[1].handle)
    for _ in range(8):
        play.send(b"y" * 20_000, topic="filling")
    play.flush()
    play.store.retention._wanted = play.store.reader.log_start + (2 << 16)
    for _ in range(5):
        play.tick()
        play.flush()
    assert play.service.counts.carried >= 2
    play.store.retention._wanted = 0
    newer = retimed(play, handle, 200_000)
    for _ in range(3):
        play.tick()
        play.flush()
    play.kill()
    assert play.ask(RETIME, topic="orders", recallHandle=handle, delayMs=1).code == 604
    retimed(play, newer, 100_000)
    play.kill()
    play.pass_ms(101_000)
    assert play.visible() == [b"far0"]
    play.kill()
    play.pass_ms(450_000)
    assert play.visible() == [b"far0", b"far2"]


def test_a_clock_set_back_delivers_a_retimed_message_once() -> None:
    play = DelayPlay()
    sent = waiting(play, 60_000)
    waiting(play, 50_000, b"other")
    retimed(play, sent.handle, 1_000)
    play.pass_ms(1_100)
    assert play.visible() == [b"x"]
    play.clock.jump(-30_000)
    for _ in range(2):
        play.tick()
        play.flush()
    play.kill()
    play.pass_ms(95_000)
    assert play.visible() == [b"x", b"other"]


def test_the_longest_delay_can_be_changed_when_the_clock_is_behind() -> None:
    play = QueuePlay(15 * DAY_MS // 1000)
    handle = play.put(b"m", delay_ms=7 * DAY_MS).handle
    play.clock.jump(-60_000)  # or another master leads, whose clock is behind
    again = play.commit(handle, 7 * DAY_MS)
    assert again is not None
    play.clock.jump(-60_000)
    assert play.commit(again, 0) == ""
    play.pass_durably(200)
    assert [one.body for one in play.take()] == [b"m"]


@pytest.mark.parametrize("code", [RECALL, RETIME])
async def test_a_message_that_slaves_lack_is_not_called_missing(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ASYNC_MASTER answers before: a commit that is told so counts as done, and its message is lost."""
    play = DelayPlay(Flush.SYNC)
    play.acks.mark = play.store.written  # what is not flushed stands for what slaves lack
    sent = play.send(TIMER_DELAY_MS="50000")
    assert sent.handle
    monkeypatch.setattr(handlers, "SEEN_S", 0.0)
    command = play.command(code, topic="orders", recallHandle=sent.handle, delayMs=10, producerGroup="g")
    handler = play.handlers.recall if code == RECALL else play.handlers.retime
    first = await cast(Awaitable[Command], handler(play.connection, command))  # type: ignore[arg-type]
    assert first.code == 2, "another attempt may find it"
    monkeypatch.setattr(handlers, "SEEN_S", 60.0)
    again = asyncio.ensure_future(cast(Awaitable[None], handler(play.connection, command)))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert not again.done()
    play.flush()
    assert await again is None
    play.flush()
    assert [one.code for one in play.connection.take() if one.opaque == command.opaque] == [0]
    play.pass_ms(60_000)
    play.flush()
    assert len(play.visible()) == (0 if code == RECALL else 1)
