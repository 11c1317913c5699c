"""A level's records that are on the disk only: asked for ahead, and never waited for on the loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gantry.store.coldrange import ColdRange
from gantry.store.disk import RealDisk
from testkit.delayplay import DelayPlay


class Cold:
    """All records are cold; the cold reader answers when it is told to."""

    def __init__(self, play: DelayPlay) -> None:
        self.play = play
        self.later: list[Callable[[], None]] = []
        self.known: set[int] = set()
        self.sizes: list[int] = []
        play.store.reader.is_cold = lambda places, end=0: places[0][0] not in self.known  # type: ignore[method-assign]
        play.store.bring_in = self.bring_in  # type: ignore[assignment, method-assign]

    def bring_in(self, places: list[tuple[int, int]], done: Callable[[], None], ahead_bytes: int = 0) -> None:
        self.sizes.append(len(places))

        def come() -> None:
            self.known.update([at for at, _ in places])
            done()

        self.later.append(come)

    def come(self) -> None:
        for one in [self.later.pop(0) for _ in range(len(self.later))]:
            one()


def test_records_of_a_level_are_delivered_when_they_are_there_and_in_order() -> None:
    play = DelayPlay()
    for number in range(600):
        play.send(b"%d" % number, DELAY="18")
    cold = Cold(play)
    play.clock.advance(7_200_000)
    woken: list[int] = []
    play.service.on_earlier = lambda: woken.append(1)
    play.deliver()
    assert play.visible() == [] and cold.sizes == [256], "the disk is slow, and nobody waits for it"
    play.deliver()
    assert cold.sizes == [256], "they are asked for once"
    for _ in range(3):
        cold.come()
        play.deliver()
    assert play.visible() == [b"%d" % number for number in range(600)] and woken
    assert sum(cold.sizes) == 600


def test_entries_that_are_never_said_to_be_in_memory_are_asked_for_once_and_delivered(tmp_path: Path) -> None:
    play = DelayPlay()
    for number in range(600):
        play.send(b"%d" % number, DELAY="18")
    asked: list[int] = []
    file = RealDisk().open(str(tmp_path / "entries"), create=True)

    def cold_entries(topic: str, queue_id: int, offset: int, count: int) -> ColdRange | None:
        return ColdRange(file, offset, offset + count) if offset < 600 else None

    def bring_in(places: list[tuple[int, int]] | ColdRange, done: Callable[[], None], ahead_bytes: int = 0) -> None:
        if isinstance(places, ColdRange):
            asked.append(places.start)
        done()

    play.store.reader.cold_entries = cold_entries  # type: ignore[method-assign]
    play.store.reader.is_cold = lambda places, end=0: True  # type: ignore[method-assign]
    play.store.bring_in = bring_in  # type: ignore[assignment, method-assign]
    play.clock.advance(7_200_000)
    for _ in range(20):
        play.deliver()
    assert play.visible() == [b"%d" % number for number in range(600)]
    assert asked == [0, 256, 512]


def test_they_are_asked_for_before_they_are_due() -> None:
    play = DelayPlay()
    for number in range(10):
        play.send(b"%d" % number, DELAY="18")
    cold = Cold(play)
    play.clock.advance(7_200_000 - 11_000)
    play.deliver()
    assert cold.sizes == []
    play.clock.advance(1_500)
    play.deliver()
    assert cold.sizes == [10]
    cold.come()
    play.pass_ms(9_600)
    assert len(play.visible()) == 10 and cold.sizes == [10]


@pytest.mark.parametrize("count", [1, 300])
def test_a_timer_message_waits_for_no_level_for_longer_than_its_records(count: int) -> None:
    play = DelayPlay()
    for _ in range(count):
        play.send(b"level", DELAY="2")
    play.send(b"time", TIMER_DELAY_MS="5500")
    cold = Cold(play)
    play.pass_ms(7000)
    cold.come()
    play.pass_ms(100)
    cold.come()
    play.pass_ms(100)
    assert sorted(play.visible()) == [b"level"] * count + [b"time"]
