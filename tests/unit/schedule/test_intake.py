"""What may be delayed."""

from __future__ import annotations

import pytest

from gantry.clock import SteadyClock
from gantry.leaves import frames, properties
from gantry.model import names
from gantry.model.topic import TopicConfig
from gantry.schedule import handles
from gantry.schedule.intake import DelayIntake
from gantry.schedule.rules import DelayRules
from gantry.store.settings import Flush
from testkit.delayplay import TOPIC, DelayPlay
from testkit.simclock import SimClock

DAY_MS = 86_400_000


def intake(pending: int = 0, **rules: bool) -> tuple[DelayIntake, SimClock]:
    clock = SimClock()
    return DelayIntake(SteadyClock(clock), DelayRules(pending_max=10, **rules), lambda: pending, "b"), clock


def message(topic: str = "orders", **pairs: str) -> frames.Send:
    packed = properties.pack({"UNIQ_KEY": "u"} | pairs)
    send = frames.Send(topic=topic, queue_id=1, properties=packed)
    send.traits = properties.scan(packed)[0]
    return send


def test_delays_and_cancels_are_wanted_and_dead_letters_never() -> None:
    delays, _ = intake()
    assert delays.wants(message(DELAY="1")) and delays.wants(message(TIMER_DEL_UNIQKEY="x"))
    assert not delays.wants(message()) and not delays.wants(message("%DLQ%g", DELAY="1"))


@pytest.mark.parametrize("name", ["TIMER_DELAY_MS", "TIMER_DELIVER_MS", "__STARTDELIVERTIME"])
def test_three_days_are_allowed_and_no_millisecond_more(name: str) -> None:
    delays, clock = intake()
    base = 0 if name == "TIMER_DELAY_MS" else clock.now_ms()
    assert delays.take(message(**{name: str(base + 3 * DAY_MS)})) is None
    refusal = delays.take(message(**{name: str(base + 3 * DAY_MS + 1)}))
    assert refusal is not None and refusal.code == 13


def test_a_time_that_has_passed_leaves_the_message_as_it_is() -> None:
    delays, clock = intake()
    for due_ms in (1, clock.now_ms()):
        send = message(TIMER_DELIVER_MS=str(due_ms))
        before = send.properties
        assert delays.take(send) is None
        assert (send.topic, send.queue_id, send.properties) == ("orders", 1, before)


def test_levels_do_not_count_against_the_limit_of_times() -> None:
    delays, _ = intake(pending=10)
    assert delays.take(message(DELAY="1")) is None
    refusal = delays.take(message(TIMER_DELAY_MS="5"))
    assert refusal is not None and refusal.code == 1 and "delays.pending_max" in refusal.remark


def test_what_is_written_and_not_dispatched_counts_against_the_limit() -> None:
    play = DelayPlay(Flush.SYNC, DelayRules(pending_max=3))
    sent = [play.send(TIMER_DELAY_MS="50") for _ in range(5)]
    assert [one.code for one in sent] == [-1, -1, -1, 1, 1]
    play.flush()
    assert play.send(TIMER_DELAY_MS="50").code == 1
    play.pass_ms(100)
    play.flush()
    assert play.send(TIMER_DELAY_MS="50").code == -1


@pytest.mark.parametrize("asks", [{"TIMER_DELAY_MS": "50"}, {"TIMER_DELAY_MS": "50", "TIMER_DEL_UNIQKEY": "x"}])
def test_what_is_gathered_in_a_turn_of_the_loop_counts_against_the_limit(asks: dict[str, str]) -> None:
    play = DelayPlay(rules=DelayRules(pending_max=3))
    play.topics.put(TopicConfig(TOPIC, 1, 1))
    play.send(DELAY="1")  # from here on the topic needs no closer look
    for _ in range(2):
        for number in range(4):
            sends = [message(TOPIC, DELAY="1"), message(TOPIC, **asks)]
            for send in sends:
                send.queue_id, send.opaque, send.rpc_flag = 0, number, 0
            play.sending.send_run(play.connection, sends)  # type: ignore[arg-type]
        play.sending.append_gathered()
        codes = [reply.code for reply in play.connection.take()]
        assert (codes.count(0), codes.count(1)) == (7, 1)
        play.pass_ms(100)


@pytest.mark.parametrize(
    "pairs",
    [
        {"DELAY": "soon"},
        {"TIMER_DELIVER_MS": "tomorrow"},
        {"TIMER_DEL_UNIQKEY": "x"},
        {"TIMER_DEL_UNIQKEY": "x", "TIMER_DELIVER_MS": "1"},
        {"TIMER_DEL_UNIQKEY": "x", "DELAY": "1"},
        {"TIMER_DEL_UNIQKEY": "x" * 383, "TIMER_DELIVER_MS": "1700000005000"},
    ],
)
def test_what_cannot_be_delayed_is_refused_as_illegal(pairs: dict[str, str]) -> None:
    refusal = intake()[0].take(message(**pairs))
    assert refusal is not None and refusal.code == 13


def test_a_cancel_goes_into_the_timer_topic() -> None:
    delays, clock = intake()
    send = message(TIMER_DEL_UNIQKEY="o" * 382, TIMER_DELIVER_MS=str(clock.now_ms() + 5))
    assert delays.take(send) is None and send.topic == names.TIMER_TOPIC


def test_a_committed_message_is_never_refused() -> None:
    delays, _ = intake(pending=10)
    send, odd = message(TIMER_DELAY_MS="5"), message(DELAY="soon")
    delays.redirect(send)
    delays.redirect(odd)
    assert send.topic == names.TIMER_TOPIC and odd.topic == "orders"


def test_where_times_are_switched_off_levels_still_work() -> None:
    delays, _ = intake(has_times=False)
    assert delays.take(message(DELAY="1")) is None
    refusal = delays.take(message(TIMER_DELAY_MS="5"))
    assert refusal is not None and refusal.code == 1 and "delays.times" in refusal.remark


def test_a_message_with_a_time_is_answered_with_its_handle() -> None:
    delays, clock = intake()
    timed, level, retry = message(TIMER_DELAY_MS="5"), message(DELAY="1"), message("%RETRY%g", TIMER_DELAY_MS="5")
    for send in (timed, level, retry):
        assert delays.take(send) is None
    found = delays.handles([timed, level, retry])
    assert handles.decode(found[0].decode()) == handles.Handle("orders", "b", clock.now_ms() + 5, "u")
    assert found[1:] == [b"", b""]
    assert intake(is_recall_allowed=False)[0].handles([timed]) == ()
