"""Queue entries of messages that come near are read by the cold reader, and later messages do not overtake them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gantry.schedule.entryreads import EntryReads
from gantry.store.coldrange import ColdRange
from gantry.store.settings import Flush
from testkit.delayplay import DelayPlay

HOUR_MS = 3_600_000


class Disk:
    """Entries of the timer's queue are on a disk that answers when it is told to."""

    def __init__(self, play: DelayPlay, monkeypatch: pytest.MonkeyPatch) -> None:
        self.brought: set[int] = set()
        self.asked: list[Callable[[], None]] = []
        self.looked_at: list[int] = []
        monkeypatch.setattr(play.store.reader, "cold_entries", self.cold_entries)
        monkeypatch.setattr(play.store, "bring_in", self.bring_in)

    def cold_entries(self, topic: str, queue_id: int, offset: int, count: int) -> ColdRange | None:
        self.looked_at.append(offset)
        return None if offset in self.brought else ColdRange(None, offset, offset + 1)  # type: ignore[arg-type]

    def bring_in(self, place: object, done: Callable[[], None]) -> None:
        def read() -> None:
            if isinstance(place, ColdRange):
                self.brought.add(place.start)
            done()

        self.asked.append(read)

    def answer(self) -> None:
        asked, self.asked = self.asked, []
        for read in asked:
            read()


def test_messages_whose_entries_are_on_the_disk_come_when_these_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    play = DelayPlay(Flush.ASYNC)
    disk = Disk(play, monkeypatch)
    play.send(b"one", TIMER_DELAY_MS=str(HOUR_MS))
    play.send(b"two", TIMER_DELAY_MS=str(HOUR_MS + 500))
    play.pass_ms(HOUR_MS + 1000)
    assert play.visible() == [], "the disk has not answered"
    play.send(b"soon", TIMER_DELAY_MS="1")
    play.pass_ms(1000)
    assert play.visible() == [], "a later one does not overtake them"
    disk.answer()
    play.pass_ms(1000)
    assert play.visible() == [b"one", b"two", b"soon"]


def test_a_page_is_asked_for_once_and_neighbours_are_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    play, came = DelayPlay(Flush.ASYNC), list[str]()
    disk = Disk(play, monkeypatch)
    reads = EntryReads(play.store, lambda: came.append("came"))
    piece = [*range(10, 60), 5000]
    assert not reads.are_there(piece) and not reads.are_there(piece)
    assert disk.looked_at == [10, 5000]
    disk.answer()
    assert came == ["came"] and reads.are_there(piece)
    disk.brought.clear()
    assert reads.are_there(piece), "what has left memory again is read on the loop"
    assert not reads.are_there([7]), "the next piece is another one"
