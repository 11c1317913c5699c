"""An HTTP queue that is deleted and made again: nothing of the former one comes back, and its handles are void."""

from __future__ import annotations

import random

import pytest

from testkit.queueplay import QUEUE, RETRY, QueuePlay


@pytest.mark.parametrize("stop", ["", "kill", "reopen", "crash"])
@pytest.mark.parametrize("is_asked", [True, False])
def test_nothing_of_the_former_queue_comes_back(stop: str, is_asked: bool) -> None:
    play = QueuePlay(life_s=3_600)
    for number in range(6):
        play.put(b"old", number + 1)
    delayed = [play.put(b"old later", delay_ms=5_000 + number).handle for number in range(3)]
    moved = play.commit(delayed[0], 7_000)
    play.take(2, visibility_ms=500)
    play.pass_durably(1_500)
    assert play.visible(RETRY) == [b"old", b"old"]
    leased = play.take(3, visibility_ms=2_000)
    assert len(leased) == 3 and moved
    if is_asked:
        assert play.stats() == (3, 3, 3)
    play.delete()
    play.make(life_s=3_600)
    if stop == "crash":
        play.crash(random.Random(5))
        if play.topics.get(QUEUE) is None:
            play.make(life_s=3_600)
    elif stop:
        getattr(play, stop)()
    assert play.stats() == (0, 0, 0)
    play.put(b"new", 9)
    assert play.stats() == (1, 0, 0)
    for one in leased:
        assert play.done(one) in ("stale", "done", "208", "17") and play.change_code(one) != 0
    for handle in [*delayed, moved]:
        assert play.commit(handle) is None and not play.cancel(handle)
    play.pass_durably(10_000)
    assert play.stats() == (1, 0, 0)
    assert [one.body for one in play.take()] == [b"new"]
    assert play.visible(QUEUE) == [b"new"] and play.visible(RETRY) == []
