"""What is saved of delayed messages, and told to slaves, speaks only of a log that no loss of power takes away."""

from __future__ import annotations

from types import SimpleNamespace

from gantry.schedule.book import DelayBook
from gantry.schedule.progressfile import ProgressFile
from testkit.memory_state import MemoryState
from testkit.simclock import SimClock


class Play:
    """A log whose end, dispatched part and durable part the test sets."""

    def __init__(self) -> None:
        self.state = MemoryState()
        self.marks = {name: SimpleNamespace(offset=0) for name in ("written", "flushed", "dispatched")}
        store = SimpleNamespace(**self.marks, reader=SimpleNamespace(log_start=0))
        self.book = DelayBook()
        self.file = ProgressFile(store, self.state, self.book, SimClock())  # type: ignore[arg-type]
        self.file.load()

    def log(self, **marks: int) -> None:
        for name, offset in marks.items():
            self.marks[name].offset = offset

    def told(self) -> tuple[object, object] | None:
        """Where the log has to be read from, and the end of the timer's queue, as slaves are told."""
        document = self.file.document()
        if document is None:
            return None
        timer = document["gantryTimer"]
        assert isinstance(timer, dict)
        return timer["log"], timer["end"]


def test_slaves_are_told_what_is_durable_and_nothing_before_that() -> None:
    one = Play()
    one.log(written=100, dispatched=100)
    one.book.timer_end = 7
    one.file.save()
    assert one.told() is None
    one.log(written=200, dispatched=200, flushed=99)
    one.file.save()
    assert one.told() is None, "a loss of power takes something away that it speaks of"
    one.log(flushed=100)
    one.book.timer_end = 9
    one.file.save()
    assert one.told() == (100, 7)


def test_a_start_reads_from_where_everything_was_dispatched_because_what_lies_behind_may_be_cut() -> None:
    one = Play()
    one.log(written=300, flushed=300, dispatched=250)
    one.file.save()
    one.file.save()
    assert one.told() == (250, 0)
    one.file.save_now()
    assert one.told() == (250, 0)


def test_what_was_saved_before_the_start_is_told_until_there_is_news() -> None:
    first = Play()
    first.log(written=50, flushed=50, dispatched=50)
    first.file.save()
    first.file.save()
    second = ProgressFile(first.file._store, first.state, DelayBook(), SimClock())
    second.load()
    assert second.document() == first.file.document()
