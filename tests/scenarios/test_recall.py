"""Taking a delayed message back: by its handle, by hand, over restarts; and asking what is pending."""

from __future__ import annotations

import asyncio

import pytest

from gantry.leaves import frames
from gantry.model import names
from gantry.schedule import handles
from gantry.schedule.handles import Handle
from gantry.schedule.rules import DelayRules
from gantry.store.settings import Flush
from gantry.wire import bodies
from gantry.wire.codes import RequestCode
from testkit.delayplay import DelayPlay, Sent

RECALL, CANCEL = RequestCode.RECALL_MESSAGE, RequestCode.CANCEL_DELAYED


def recall(play: DelayPlay, sent: Sent, topic: str = "orders") -> frames.Command:
    return play.ask(RECALL, topic=topic, recallHandle=sent.handle, producerGroup="g")


def listed(play: DelayPlay, **ext: str | int) -> tuple[list[dict[str, object]], int]:
    command = frames.Command(RequestCode.LIST_DELAYED, ext={name: str(one) for name, one in ext.items()})
    answer = asyncio.run(play.handlers.page(play.connection, command))  # type: ignore[arg-type]
    body = bodies.loads_object(answer.body)
    return body["delayed"], body["next"]  # type: ignore[return-value]


@pytest.mark.parametrize("stop", ["", "reopen", "kill"])
@pytest.mark.parametrize("flush", [Flush.ASYNC, Flush.SYNC])
def test_a_recalled_message_is_never_delivered(flush: Flush, stop: str) -> None:
    play = DelayPlay(flush)
    due_ms = play.clock.now_ms() + 500
    sent, other = [
        Sent(0, key, handles.encode(Handle("orders", "b", due_ms, key)), "") for key in ("first", "second")
    ]
    for one in (sent, other):
        play.send(one.key.encode(), UNIQ_KEY=one.key, TIMER_DELIVER_MS=str(due_ms))
    play.flush()
    answer = recall(play, sent)
    assert (answer.code, answer.ext) == (0, {"msgId": "first"})
    play.tick()
    play.tick()
    if stop:
        getattr(play, stop)()
    play.pass_ms(1000)
    play.flush()
    assert play.visible() == [b"second"] and play.service.counts.cancelled == 1


def test_the_answer_to_a_send_has_the_handle() -> None:
    play = DelayPlay()
    sent = play.send(b"x", TIMER_DELAY_MS="500")
    assert handles.decode(sent.handle) == Handle("orders", "b", play.clock.now_ms() + 500, sent.key)
    assert recall(play, sent).code == 0
    assert play.send(b"x", DELAY="1").handle == ""


def test_a_recall_that_was_answered_counts_although_the_message_is_due_before_the_cancel_is_dispatched() -> None:
    play = DelayPlay(Flush.SYNC)
    play.send(b"x", UNIQ_KEY="k", TIMER_DELAY_MS="20")
    play.flush()
    handle = handles.encode(Handle("orders", "b", play.clock.now_ms() + 20, "k"))
    command = frames.Command(RECALL, ext={"topic": "orders", "recallHandle": handle, "producerGroup": "g"})
    assert play.handlers.recall(play.connection, command) is None  # type: ignore[arg-type]
    play.pass_ms(100)
    play.flush()
    assert play.visible() == []


def test_what_is_not_pending_cannot_be_taken_back() -> None:
    play = DelayPlay()
    sent = play.send(b"x", TIMER_DELAY_MS="50")
    soon_ms = play.clock.now_ms() + 50
    wrong = {
        "no handle": "nonsense",
        "other broker": handles.encode(Handle("orders", "c", soon_ms, sent.key)),
        "other topic": handles.encode(Handle("bills", "b", soon_ms, sent.key)),
        "other time": handles.encode(Handle("orders", "b", soon_ms + 1, sent.key)),
        "other key": handles.encode(Handle("orders", "b", soon_ms, "K")),
        "far ahead": handles.encode(Handle("orders", "b", soon_ms + 10 * 86_400_000, sent.key)),
        "past": handles.encode(Handle("orders", "b", 5, sent.key)),
    }
    for what, handle in wrong.items():
        assert recall(play, sent._replace(handle=handle)).code == 604, what
    assert recall(play, sent, "nowhere").code == 17
    play.pass_ms(100)
    assert recall(play, sent).code == 604 and play.visible() == [b"x"]


def test_what_was_delivered_cannot_be_taken_back_because_the_clock_was_set_back() -> None:
    play = DelayPlay()
    sent = play.send(b"x", TIMER_DELAY_MS="50")
    play.pass_ms(100)
    play.clock.jump(-90)
    assert recall(play, sent).code == 604 and listed(play)[0] == []


def test_a_second_recall_of_the_same_message_finds_nothing_pending() -> None:
    play = DelayPlay()
    sent = play.send(b"x", TIMER_DELAY_MS="50")
    assert [recall(play, sent).code for _ in range(2)] == [0, 604]


def test_recalls_can_be_forbidden() -> None:
    play = DelayPlay(rules=DelayRules(is_recall_allowed=False))
    sent = play.send(b"x", TIMER_DELAY_MS="50")
    assert sent.handle == "" and recall(play, sent).code == 16


def test_a_full_disk_refuses_a_recall_and_the_message_comes() -> None:
    play = DelayPlay()
    sent = play.send(b"x", TIMER_DELAY_MS="500")
    play.store.retention.seen = play.store.retention.seen._replace(used=3.0)
    assert recall(play, sent).code == 14
    play.store.retention.seen = play.store.retention.seen._replace(used=0.0)
    play.gate.reopen("disk full")
    play.pass_ms(1000)
    assert play.visible() == [b"x"]


def test_a_cancel_by_a_message_of_the_producers_own_works_as_with_rocketmq() -> None:
    play = DelayPlay()
    due = str(play.clock.now_ms() + 300)
    play.send(b"x", UNIQ_KEY="k", TIMER_DELIVER_MS=due)
    play.send(b"y", UNIQ_KEY="l", TIMER_DELIVER_MS=due)
    assert play.send(b"0", UNIQ_KEY="c", TIMER_DELIVER_MS=due, TIMER_DEL_UNIQKEY="ordersk").code == 0
    assert play.send(b"0", UNIQ_KEY="d", TIMER_DELIVER_MS=due, TIMER_DEL_UNIQKEY="l").code == 0
    play.pass_ms(1000)
    assert play.visible() == []


def test_both_kinds_can_be_cancelled_by_hand_and_only_what_is_pending() -> None:
    play = DelayPlay()
    level, timed = play.send(b"level", DELAY="2"), play.send(b"time", TIMER_DELAY_MS="5000")
    kept = play.send(b"kept", DELAY="2")
    by_offset_id = next(one for one in listed(play)[0] if one["id"] == timed.key)["messageId"]
    assert play.ask(CANCEL, id=level.key, operator="o").code == 0
    assert play.ask(CANCEL, id=str(by_offset_id), operator="o").code == 0
    assert play.ask(CANCEL, id=level.key, operator="o").code == 22
    play.kill()
    play.pass_ms(6000)
    assert play.visible() == [b"kept"]
    assert play.ask(CANCEL, id=kept.key, operator="o").code == 22


def test_the_list_has_what_is_pending_page_by_page() -> None:
    play = DelayPlay()
    for number in range(7):
        play.send(b"x", topic="orders" if number % 2 else "bills", DELAY=str(number % 3 + 1))
        play.send(b"x", TIMER_DELAY_SEC=str(10 * number + 1))
    play.send(b"gone", DELAY="1")
    found: list[dict[str, object]] = []
    cursor = pages = 0
    while cursor >= 0:
        page, cursor = listed(play, begin=cursor, limit=4)
        found += page
        pages += 1
    assert len(found) == 15 == len({one["id"] for one in found}) and pages == 4
    assert {one["level"] for one in found} == {0, 1, 2, 3}
    assert len(listed(play, topic="bills")[0]) == 4
    play.pass_ms(1010)
    assert len(listed(play)[0]) == 15 - 4 - 1, "four of level 1 and the first time are out"


def test_the_offsets_are_rocketmqs_document() -> None:
    play = DelayPlay()
    play.send(b"x", DELAY="1")
    play.pass_ms(1000)
    body = bodies.loads_object(play.ask(RequestCode.GET_ALL_DELAY_OFFSET).body)
    table = body["offsetTable"]
    assert isinstance(table, dict) and len(table) == 18 and (table["1"], table["2"]) == (1, 0)


def test_nothing_of_a_delay_is_a_topic_that_a_consumer_would_see() -> None:
    play = DelayPlay()
    play.send(b"x", DELAY="1")
    play.send(b"x", TIMER_DELAY_MS="100")
    hidden = {topic for topic, _ in play.store.queues()}
    assert hidden == {names.SCHEDULE_TOPIC, names.TIMER_TOPIC}
