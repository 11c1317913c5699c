"""How far groups have pulled: between what they committed and the end of the queue."""

from __future__ import annotations

from gantry.metadata.pulled import PulledOffsets


def test_what_was_pulled_lies_between_the_committed_offset_and_the_end() -> None:
    pulled = PulledOffsets()
    assert pulled.of("g", "T", 0, committed=3, end=9) == 3, "nothing was pulled since the start"
    pulled.note("g", "T", 0, 7)
    assert pulled.of("g", "T", 0, committed=3, end=9) == 7
    assert pulled.of("g", "T", 0, committed=8, end=9) == 8, "a commit is never ahead of it"
    assert pulled.of("g", "T", 0, committed=3, end=5) == 5, "the queue has become shorter"
    assert pulled.of("g", "T", 0, committed=6, end=5) == 6
    assert pulled.of("g", "T", 1, committed=0, end=9) == pulled.of("h", "T", 0, committed=0, end=9) == 0


def test_a_pull_that_was_sent_back_counts() -> None:
    pulled = PulledOffsets()
    pulled.note("g", "T", 0, 7)
    pulled.note("g", "T", 0, 2)
    assert pulled.of("g", "T", 0, committed=1, end=9) == 2


def test_resets_and_deletions_are_forgotten_and_nothing_else() -> None:
    pulled = PulledOffsets()
    for group, topic, queue_id in (("g", "T", 0), ("g", "T", 1), ("g", "U", 0), ("h", "T", 0), ("h", "V", 0)):
        pulled.note(group, topic, queue_id, 7)

    def known() -> set[tuple[str, str, int]]:
        every = [(group, topic, queue_id) for group in "gh" for topic in "TUV" for queue_id in (0, 1)]
        return {(*one[:2], one[2]) for one in every if pulled.of(*one, committed=0, end=9)}

    pulled.forget("g", "T", 0)
    pulled.forget("unknown", "T", 0)
    assert known() == {("g", "T", 1), ("g", "U", 0), ("h", "T", 0), ("h", "V", 0)}
    pulled.forget_topic("T")
    assert known() == {("g", "U", 0), ("h", "V", 0)}
    pulled.forget_group("g")
    assert known() == {("h", "V", 0)}
