"""Delays on a disk that fills, and on segments that are about to go."""

from __future__ import annotations

import random

import pytest

from gantry.errors import DiskFullError
from gantry.leaves import properties
from gantry.model import names
from gantry.schedule.rules import DelayRules
from gantry.store.settings import Flush
from testkit.delayplay import DelayPlay

HOUR_MS = 3_600_000


def test_a_document_that_finds_no_room_is_saved_when_there_is_some_and_nothing_waits_for_it() -> None:
    play = DelayPlay(flush_full_ms=500)
    play.disk.quota_bytes = 1
    for number in range(20):
        assert play.send(b"%d" % number, TIMER_DELAY_MS="500").code == 0, "the log's segment was allocated before"
    play.pass_ms(3000)
    assert len(play.visible()) == 20 and not play.disk.exists("/store/config/delayOffset.json")
    play.disk.quota_bytes = 1 << 40
    play.pass_ms(3000)
    assert play.disk.exists("/store/config/delayOffset.json")
    play.kill()
    play.pass_ms(1000)
    assert len(play.visible()) == 20


def test_a_crash_while_the_document_could_not_be_saved_repeats_nothing() -> None:
    play = DelayPlay(Flush.SYNC)
    for number in range(20):
        play.send(b"%d" % number, TIMER_DELAY_MS="500")
        play.send(b"l%d" % number, DELAY="1")
    play.flush()
    play.disk.quota_bytes = play.disk._used_bytes()
    for _ in range(30):
        play.pass_ms(100)
        play.flush()
    assert len(play.visible()) == 40
    play.disk.quota_bytes = 1 << 40
    play.crash(random.Random(1))
    play.pass_ms(3000)
    play.flush()
    assert len(play.visible()) == 40 == len(set(play.visible()))


@pytest.mark.parametrize("stop", ["", "kill", "crash"])
def test_what_is_pending_is_carried_on_before_its_segment_goes(stop: str) -> None:
    play = DelayPlay(segment_bytes=1 << 16, reserved_ms=HOUR_MS)
    play.send(b"far", TIMER_DELAY_MS=str(5 * HOUR_MS), UNIQ_KEY="k", KEYS="of the business")
    play.send(b"level", DELAY="18")
    gone = play.send(b"gone", TIMER_DELAY_MS=str(5 * HOUR_MS))
    play.ask(24012, id=gone.key, operator="o")
    for _ in range(40):
        play.send(bytes(5000))
    play.clock.advance(HOUR_MS + 60_000)
    for _ in range(3):
        play.store.retention._wanted = 1 << 16
        play.deliver()
        play.tick()
    assert play.service.counts.carried >= 2
    if stop:
        play.store._flush.finish()
        getattr(play, stop)()
    for _ in range(3):
        play.clock.advance(5000)
        play.store.retention._wanted = 1 << 16
        play.deliver()
        play.tick()
    owed = play.store.retention.owed_from()
    assert owed is not None and owed >= 1 << 16, "the first segment may go"
    for _ in range(5 * 60):
        play.clock.advance(60_000)
        play.deliver()
        play.tick()
    late = [record for record in play.records() if record.body in (b"far", b"level", b"gone")]
    assert sorted(record.body for record in late) == [b"far", b"level"]
    pairs = properties.parse(next(record for record in late if record.body == b"far").properties)
    assert (pairs["UNIQ_KEY"], pairs["KEYS"], pairs["TIMER_ROLL_TIMES"]) == ("k", "of the business", "1")


def test_a_full_disk_does_not_lose_what_was_to_be_carried() -> None:
    play = DelayPlay(segment_bytes=1 << 16, reserved_ms=HOUR_MS, rules=DelayRules())
    for number in range(100):
        play.send(b"%d" % number, TIMER_DELAY_MS=str(2 * HOUR_MS + number))
    for _ in range(40):
        play.send(bytes(5000))
    play.clock.advance(HOUR_MS + 60_000)
    real = play.store.append

    def full(*_: object, **__: object) -> int:
        raise DiskFullError("No space left on device")

    play.store.append = full  # type: ignore[method-assign]
    for _ in range(3):
        play.store.retention._wanted = 1 << 16
        play.tick()
    assert play.service.counts.carried == 0 and play.service.pending == 100
    owed = play.store.retention.owed_from()
    assert owed is not None and owed < 1 << 16, "its segment stays"
    play.store.append = real  # type: ignore[method-assign]
    play.gate.reopen("disk full")
    play.store.retention._wanted = 1 << 16
    play.tick()
    assert play.service.counts.carried == 100 == play.service.pending
    play.clock.advance(HOUR_MS)
    play.pass_ms(1000)
    assert len([record for record in play.records() if len(record.body) < 9]) == 100
    assert names.TIMER_TOPIC not in {record.topic for record in play.records()}
