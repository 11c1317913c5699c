"""What is with clients of a group that pops in order is told by `pullOffset`, as for groups that pull."""

from __future__ import annotations

from testkit.orderplay import OrderPlay
from testkit.popplay import GROUP, TOPIC


def test_a_batch_that_is_with_a_client_counts_as_pulled() -> None:
    play = OrderPlay()
    for body in (b"one", b"two", b"three"):
        play.message(body)
    first, second = play.taken(2)

    def pulled() -> tuple[int, int]:
        committed = play.offsets.query(GROUP, TOPIC, 0)
        return committed, play.offsets.pulled.of(GROUP, TOPIC, 0, committed, 3)

    assert pulled() == (0, 2)
    play.ack(first)
    play.flush()
    assert pulled() == (1, 2)
    play.ack(second)
    play.flush()
    assert pulled() == (2, 2)
