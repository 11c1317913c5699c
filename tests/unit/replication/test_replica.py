"""What a slave may promise, in all orders in which news may come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gantry.replication.replica import Replica

STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "flush", "change", "free", "keep", "confirm"]), st.integers(1, 50))
)


@given(STEPS)
def test_no_promise_goes_beyond_what_is_on_the_disk(steps: list[tuple[str, int]]) -> None:
    replica = Replica(100, 100, 40)
    flushed, changes, kept, freed, before = 100, [], 0, 0, replica.ack
    for what, amount in steps:
        if what == "append":
            replica.append(replica.written, replica.written + amount)
        elif what == "flush":
            flushed = min(flushed + amount, replica.written)
            replica.hold(flushed)
        elif what == "change":
            assert replica.change(replica.applied + amount)
            changes.append((replica.applied, replica.written))
        elif what == "free":
            freed = min(freed + amount, replica.applied)
            replica.free(freed)
        elif what == "keep":
            kept = min(kept + amount, replica.applied)
            replica.keep(kept)
        else:
            replica.confirm(40 + amount * 5)
        ack = replica.ack
        assert ack.held <= flushed <= ack.written == replica.written
        assert ack.metadata == kept
        for number, came_at in changes:
            assert number <= max(kept, freed) or ack.held <= came_at, "records were promised without what they need"
        assert ack.held >= before.held and ack.metadata >= before.metadata, "a promise was taken back"
        assert replica.confirmed <= replica.written
        before = ack


def test_what_the_master_confirms_ahead_is_confirmed_when_it_comes() -> None:
    replica = Replica(100, 100, 100)
    replica.confirm(150)
    assert replica.confirmed == 100
    replica.append(100, 140)
    assert replica.confirmed == 140
    replica.append(140, 200)
    assert replica.confirmed == 150


def test_a_change_that_is_known_is_no_barrier() -> None:
    replica = Replica(0, 0, 0)
    assert replica.change(7) and not replica.change(7) and not replica.change(3)
