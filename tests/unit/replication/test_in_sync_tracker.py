"""Who is in step, who is not, and what producers and consumers get of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gantry.replication.epochs import EpochTable
from gantry.replication.handshake import Hello
from gantry.replication.in_sync_tracker import NEAR_BYTES, InSyncPolicy, InSyncTracker, Term
from gantry.replication.members import Member
from gantry.wire.ha import Ack


def hello(place: int, store_uid: str, end: int, incarnation: int = -1) -> Hello:
    return Hello("", "broker-a", place, store_uid, EpochTable(), 0, end, 0, 4096, 0, incarnation, "p")


def tracker(min_in_sync: int = 2, start: int = 100, confirmed: int = 60) -> InSyncTracker:
    return InSyncTracker(start, confirmed, Term(1), InSyncPolicy(min_in_sync))


def joined(min_in_sync: int = 2, slaves: int = 1) -> InSyncTracker:
    one = tracker(min_in_sync)
    one.share(100, 0.0)
    for broker_id in range(1, slaves + 1):
        assert not one.meet(hello(broker_id, f"store-{broker_id}", 100), "here", 0.0, 0)
        one.acknowledge(broker_id, Ack(100, 100, 0), 100, 0.0)
        one.acknowledge(broker_id, Ack(100, 100, 0), 100, 3.0)
    assert one.in_sync == list(range(slaves + 1))
    return one


def test_with_too_few_members_nothing_is_confirmed_and_writes_are_refused() -> None:
    one = tracker()
    assert one.share(100, 0.0) == 60 and one.is_short(0.0)


def test_the_slave_that_is_missing_joins_at_once_and_the_tail_is_confirmed() -> None:
    one = joined()
    assert one.confirmed == 100 and not one.is_short(3.0)


def test_a_slave_that_has_not_all_that_was_there_at_the_start_does_not_join() -> None:
    one = tracker()
    one.share(100, 0.0)
    one.meet(hello(1, "store", 80), "here", 0.0, 0)
    one.acknowledge(1, Ack(80, 80, 0), 100, 0.0)
    assert one.in_sync == [0] and one.confirmed == 60


def test_every_member_has_what_is_confirmed() -> None:
    one = joined(slaves=2)
    one.share(200, 4.0)
    assert one.acknowledge(1, Ack(200, 150, 0), 200, 4.0) == 100
    assert one.acknowledge(2, Ack(200, 200, 0), 200, 4.0) == 150


def test_a_dead_slave_that_is_needed_shuts_the_gate_after_its_silence() -> None:
    one = joined()
    one.share(200, 10.0)
    one.acknowledge(1, Ack(100, 100, 0), 200, 10.0)
    one.lose(1, False, 10.0)
    assert not one.is_short(12.9) and one.tick(200, 12.9) == 100
    assert one.tick(200, 13.1) == 100 and one.is_short(13.1)
    assert one.why_late(200, 13.1) == "gone"


def test_a_dead_slave_that_is_not_needed_leaves_and_writes_go_on() -> None:
    one = joined(min_in_sync=1)
    one.share(200, 10.0)
    one.acknowledge(1, Ack(100, 100, 0), 200, 10.0)
    one.lose(1, False, 10.0)
    assert one.tick(200, 12.9) == 100
    assert one.tick(200, 13.1) == 200 and one.in_sync == [0] and not one.is_short(13.1)


def test_a_set_that_waits_for_one_that_is_gone_takes_another_one_in_at_once() -> None:
    one = joined()
    one.acknowledge(1, Ack(100, 100, 0), 100, 10.0)
    one.lose(1, False, 10.0)
    assert not one.meet(hello(2, "store-2", 100), "here", 11.0, 0)
    one.acknowledge(2, Ack(100, 100, 0), 100, 12.9)
    assert one.in_sync == [0, 1], "the other one may come back, and this one has just come"
    one.acknowledge(2, Ack(100, 100, 0), 100, 13.0)
    assert one.in_sync == [0, 1, 2]
    one.tick(100, 13.1)
    assert one.in_sync == [0, 2] and not one.is_short(13.1)


def test_a_slave_that_says_goodbye_leaves_at_once() -> None:
    one = joined(min_in_sync=1)
    one.share(200, 10.0)
    assert one.lose(1, True, 10.0) == 200


def test_a_slave_that_is_too_far_behind_for_too_long_leaves() -> None:
    one = joined(min_in_sync=1)
    for second in range(10, 40):
        one.share(100 + second, float(second))
        one.acknowledge(1, Ack(100, 100, 0), 100 + second, float(second))
        one.tick(100 + second, float(second))
    assert one.in_sync == [0] and one.confirmed == 139


def test_under_load_our_share_waits_for_the_one_who_joins() -> None:
    one = tracker(min_in_sync=1)
    assert one.share(100, 0.0) == 100
    one.meet(hello(1, "store", 0), "here", 0.0, 0)
    written, slave, now_s = 100, 0, 0.0
    for _ in range(5000):
        # Always a round trip behind: an acknowledgement comes when more has been written already.
        now_s += 0.001
        behind, written = written, written + 10
        one.share(written, now_s)
        slave = behind
        one.acknowledge(1, Ack(slave, slave, 0), written, now_s)
        one.tick(written, now_s)
        if one.in_sync == [0, 1]:
            break
    assert one.in_sync == [0, 1] and now_s < 4.0
    assert one.confirmed <= slave


def test_a_pause_that_helps_nobody_ends() -> None:
    one = tracker(min_in_sync=1)
    one.share(100, 0.0)
    one.meet(hello(1, "store", 0), "here", 0.0, 0)
    one.acknowledge(1, Ack(50, 50, 0), 100, 0.0)
    one.acknowledge(1, Ack(50, 50, 0), 100, 3.5)
    assert one.share(200, 3.6) == 100
    assert one.tick(200, 3.8) == 200


def test_a_slave_far_behind_costs_no_pause() -> None:
    one = tracker(min_in_sync=1)
    one.share(NEAR_BYTES + 200, 0.0)
    one.meet(hello(1, "store", 0), "here", 0.0, 0)
    for second in range(5):
        one.acknowledge(1, Ack(10, 10, 0), NEAR_BYTES + 200, float(second))
    assert one.share(NEAR_BYTES + 300, 5.0) == NEAR_BYTES + 300


def test_what_a_slave_said_before_it_lost_it_counts_no_more() -> None:
    one = joined()
    one.share(250, 4.0)
    one.acknowledge(1, Ack(300, 300, 0), 300, 4.0)
    assert one.confirmed == 250
    one.lose(1, False, 5.0)
    assert not one.meet(hello(1, "store-1", 200), "here", 6.0, 0)
    # Our own disk has it now; the slave had, and has it no more.
    assert one.share(300, 6.0) == 250
    one.acknowledge(1, Ack(240, 240, 0), 300, 6.1)
    assert one.tick(300, 6.2) == 250
    one.acknowledge(1, Ack(260, 260, 0), 300, 6.3)
    assert one.confirmed == 260 and one.in_sync == [0, 1]
    one.acknowledge(1, Ack(300, 300, 0), 300, 6.4)
    assert one.confirmed == 300


def test_who_joins_meanwhile_does_not_make_a_lost_word_count() -> None:
    one = joined()
    one.share(250, 4.0)
    one.acknowledge(1, Ack(300, 300, 0), 300, 4.0)
    one.lose(1, False, 5.0)
    one.meet(hello(1, "store-1", 200), "here", 6.0, 0)
    one.share(300, 6.0)
    one.meet(hello(2, "store-2", 300), "there", 6.0, 0)
    for second in range(7, 12):
        one.acknowledge(1, Ack(200, 200, 0), 300, float(second))
        assert one.acknowledge(2, Ack(300, 300, 0), 300, float(second)) == 250
    assert one.in_sync == [0, 1, 2]


def test_a_slave_that_lost_its_tail_and_goes_again_leaves_where_it_is_not_needed() -> None:
    one = joined(min_in_sync=1)
    one.acknowledge(1, Ack(300, 300, 0), 300, 4.0)
    one.lose(1, False, 5.0)
    one.meet(hello(1, "store-1", 200), "here", 6.0, 0)
    assert one.share(300, 6.0) == 100
    one.lose(1, False, 7.0)
    assert one.tick(300, 10.1) == 300 and one.in_sync == [0]


def test_waited_for_are_members_of_the_set_no_matter_who_came_in_their_place_and_everybody_while_it_is_short() -> None:
    one = joined(min_in_sync=1)
    assert one.is_waited_for(1) and not one.is_waited_for(2)
    one.lose(1, False, 4.0)
    one.meet(hello(1, "store-1", 0), "here", 4.1, 0)
    assert one.is_waited_for(1), "the set has its former incarnation"
    one.lose(1, True, 5.0)
    assert one.in_sync == [0] and not one.is_waited_for(1)
    assert tracker(min_in_sync=2).is_waited_for(2), "nothing is taken before somebody is there"


def test_a_place_belongs_to_one_slave_at_a_time() -> None:
    one = joined()
    assert "taken" in one.meet(hello(1, "another store", 0), "there", 5.0, 0)
    assert not one.meet(hello(1, "store-1", 100), "there", 5.0, 0), "it may come again before we know that it went"
    one.lose(1, False, 6.0)
    assert not one.meet(hello(1, "another store", 100), "there", 7.0, 0)


def test_administrators_wait_for_the_slowest_member_of_the_set() -> None:
    one = joined(slaves=2)
    one.acknowledge(1, Ack(100, 100, 7), 100, 4.0)
    one.acknowledge(2, Ack(100, 100, 5), 100, 4.0)
    assert one.keeps(9, 4.0) == 5
    assert tracker().keeps(9, 4.0) == 9


def test_who_is_late_is_named() -> None:
    one = joined()
    assert one.why_late(200, 4.0) == "self"
    one.share(200, 4.0)
    assert one.why_late(200, 4.0) == "slow"
    one.lose(1, False, 4.0)
    assert one.why_late(200, 4.0) == "gone"


def test_readers_are_sent_to_a_connected_member_only() -> None:
    one = joined(slaves=2)
    assert one.slave_to_read() == 1
    one.lose(1, False, 4.0)
    assert one.slave_to_read() == 2
    assert tracker().slave_to_read() == -1, "nobody"


def test_a_slave_joins_with_all_changes_of_metadata_from_before_it_came() -> None:
    one = tracker(min_in_sync=1)
    one.share(100, 0.0)
    one.meet(hello(1, "store", 100), "here", 0.0, 7)
    one.acknowledge(1, Ack(100, 100, 6), 100, 0.0)
    one.acknowledge(1, Ack(100, 100, 6), 100, 3.0)
    assert one.in_sync == [0]
    one.acknowledge(1, Ack(100, 100, 7), 100, 3.1)
    assert one.in_sync == [0, 1]


def test_a_slave_that_comes_back_joins_with_the_changes_of_metadata_that_it_missed() -> None:
    one = joined(min_in_sync=1)
    one.lose(1, True, 4.0)
    assert one.in_sync == [0]
    one.meet(hello(1, "store-1", 100), "here", 5.0, 7)
    one.acknowledge(1, Ack(100, 100, 6), 100, 5.0)
    one.acknowledge(1, Ack(100, 100, 6), 100, 9.0)
    assert one.in_sync == [0], "all of the log that it had before it went, and not the metadata"
    one.acknowledge(1, Ack(100, 100, 7), 100, 9.1)
    assert one.in_sync == [0, 1]


def test_a_link_that_has_just_begun_confirms_nothing_before_it_has_the_metadata_of_its_log() -> None:
    one = joined()
    one.share(200, 10.0)
    one.lose(1, False, 10.0)
    one.meet(hello(1, "store-1", 200), "here", 10.5, 7)
    assert one.acknowledge(1, Ack(200, 200, 0), 200, 10.5) == 100
    assert one.acknowledge(1, Ack(200, 200, 6), 200, 10.6) == 100
    assert one.acknowledge(1, Ack(200, 200, 7), 200, 10.7) == 200


def test_metadata_is_kept_when_every_slave_has_it_that_may_join() -> None:
    one = tracker(min_in_sync=1)
    one.share(100, 0.0)
    assert one.keeps(7, 0.0) == 7
    one.meet(hello(1, "store", 100), "here", 0.0, 0)
    one.acknowledge(1, Ack(100, 100, 6), 100, 0.0)
    assert one.in_sync == [0] and one.keeps(7, 0.0) == 6
    one.lose(1, False, 1.0)
    assert one.keeps(7, 1.0) == 7


def test_a_slave_outside_the_set_whose_disk_hangs_is_not_waited_for_and_does_not_join_without_the_change() -> None:
    one = joined(slaves=1)
    one.acknowledge(1, Ack(100, 100, 6), 100, 10.0)
    one.meet(hello(2, "store-2", 100), "there", 10.0, 6)
    one.acknowledge(2, Ack(100, 100, 6), 100, 10.0)
    assert one.keeps(7, 10.5) == 6, "it is about to join"
    one.acknowledge(1, Ack(100, 100, 7), 100, 10.6)
    assert one.keeps(7, 11.4) == 6
    assert one.keeps(7, 11.6) == 7, "the disk of slave 2 hangs"
    one.acknowledge(2, Ack(100, 100, 6), 100, 20.0)
    assert one.in_sync == [0, 1], "it lacks a change that was answered"
    one.acknowledge(2, Ack(100, 100, 7), 100, 21.0)
    one.acknowledge(2, Ack(100, 100, 7), 100, 31.0)
    assert one.in_sync == [0, 1, 2]


def test_a_member_that_has_not_come_since_the_epoch_began_is_waited_for_a_quarter_as_long() -> None:
    recorded = frozenset({Member(0, 0), Member(1, 0)})
    one = InSyncTracker(100, 60, Term(5, Member(0, 0), recorded, 10.0), InSyncPolicy(2), lambda change: None)
    assert not one.is_short(10.7) and one.is_short(10.8), "so that another one may join at once"


def test_who_lacks_a_change_is_named() -> None:
    one = joined(slaves=2)
    one.acknowledge(1, Ack(100, 100, 7), 100, 4.0)
    assert one.who_lacks(7) == "slave 2"


def fails_after_each_welcome(one: InSyncTracker, until_s: float, metadata: int = 0, floor: int = 0) -> None:
    """The link of slave 1 ends at the first byte that it should take, and begins again, while messages are written."""
    now_s, written = 10.0, 200
    while now_s < until_s:
        one.share(written, now_s)
        one.tick(written, now_s)
        one.meet(hello(1, "store-1", 100), "here", now_s, floor)
        one.acknowledge(1, Ack(100, 100, metadata), written, now_s + 0.01)
        one.tick(written, now_s + 0.02)
        one.lose(1, False, now_s + 0.03)
        written, now_s = written + 10, now_s + 0.1


@pytest.mark.parametrize("newest", [0, 7], ids=["a chunk", "a change of metadata"])
def test_a_slave_whose_link_fails_after_each_welcome_leaves_as_if_it_were_gone(newest: int) -> None:
    one = joined(min_in_sync=1)
    fails_after_each_welcome(one, 12.9, floor=newest)
    assert one.in_sync == [0, 1] and one.confirmed == 100
    fails_after_each_welcome(one, 13.3, floor=newest)
    assert one.in_sync == [0] and one.confirmed > 100


def test_where_such_a_slave_is_needed_writes_are_refused_instead() -> None:
    one = joined()
    fails_after_each_welcome(one, 12.9)
    assert not one.is_short(12.95)
    fails_after_each_welcome(one, 13.3)
    assert one.in_sync == [0, 1] and one.is_short(13.35)
    one.meet(hello(1, "store-1", 100), "here", 20.0, 0)
    assert one.is_short(20.0), "a new link proves nothing"
    assert one.acknowledge(1, Ack(300, 300, 0), 300, 20.1) > 100 and not one.is_short(20.1)


def test_a_link_that_brings_what_was_asked_for_ends_the_silence_of_those_before_it() -> None:
    one, written = joined(min_in_sync=1), 100
    for second in range(10, 40):
        written += 10
        one.share(written, float(second))
        one.tick(written, float(second))
        one.lose(1, False, second + 0.1)
        one.meet(hello(1, "store-1", written - 10), "here", second + 0.2, 0)
        one.acknowledge(1, Ack(written, written, 0), written, second + 0.3)
        one.tick(written, second + 0.4)
    assert one.in_sync == [0, 1]


def test_lag_goes_on_over_a_new_link() -> None:
    one, far, held = joined(min_in_sync=1), 1 << 40, 100
    one.share(far, 10.0)
    one.tick(far, 10.0)
    for tenth in range(100, 260):
        now_s = tenth / 10
        if tenth == 200:
            one.meet(hello(1, "store-1", held), "here", now_s, 0)
        held += 1000
        one.acknowledge(1, Ack(held, held, 0), far, now_s)
        one.tick(far, now_s)
        assert (one.in_sync == [0, 1]) is (now_s <= 25.0)


def test_a_slave_without_room_is_not_taken_into_a_set_that_is_large_enough_without_it() -> None:
    one = joined(min_in_sync=2)
    for now_s, is_full in ((10.0, True), (20.0, False)):
        one.meet(replace(hello(2, "store-2", 100), is_full=is_full), "here", now_s, 0)
        one.acknowledge(2, Ack(100, 100, 0), 100, now_s)
        one.acknowledge(2, Ack(100, 100, 0), 100, now_s + 3.0)
        assert one.in_sync == ([0, 1] if is_full else [0, 1, 2])


def test_where_the_set_is_too_small_a_slave_without_room_is_better_than_none() -> None:
    one = tracker()
    one.share(100, 0.0)
    one.meet(replace(hello(1, "store", 100), is_full=True), "here", 0.0, 0)
    one.acknowledge(1, Ack(100, 100, 0), 100, 0.0)
    assert one.in_sync == [0, 1]
