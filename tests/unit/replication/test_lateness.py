"""Late is measured by what a message would wait, and not by whether there is progress."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from gantry.replication.epochs import EpochTable
from gantry.replication.handshake import Hello
from gantry.replication.in_sync_tracker import InSyncPolicy, InSyncTracker, Term
from gantry.replication.lateness import Lateness
from gantry.replication.timers import derive_waits
from gantry.wire.ha import Ack

SLOW_S = 1.5  # half of what producers wait
WAITS = replace(derive_waits(2.5), slow_s=SLOW_S)
NEVER = 1e9


def test_slow_probes_add_up_over_pauses_and_only_quick_ones_undo_them() -> None:
    made = Lateness(SLOW_S, 0.0)
    made.look(0, 10, 0.0)
    assert made.late_s(1.4) == 0.0 and made.late_s(1.6) == 1.6, "that it has not come yet is late as well"
    made.reached(10, 10, 4.0)
    made.reached(10, 10, 9.0)  # a heartbeat, after which nothing is missing
    assert made.late_s(9.0) == 4.0 and made.quick_s(9.0) == 5.0
    made.look(10, 20, 10.0)
    made.reached(20, 20, 11.0)
    assert made.late_s(11.0) == 4.0, "neither slow nor quick"
    made.look(20, 30, 12.0)
    made.reached(30, 30, 12.1)
    assert made.late_s(12.1) == pytest.approx(2.9)
    made.reached(31, 31, 30.0)  # it came so soon that no probe had begun
    assert made.late_s(30.0) == 0.0


def test_a_disk_that_is_slow_every_second_time_is_late() -> None:
    made, now_s = Lateness(SLOW_S, 0.0), 0.0
    for offset in range(0, 40, 20):
        made.look(offset, offset + 10, now_s)
        made.reached(offset + 10, offset + 20, now_s + 4.0)
        made.reached(offset + 20, offset + 20, now_s + 4.1)
        now_s += 4.1
    assert made.late_s(now_s) > 5.0


@dataclass
class Group:
    """A master that writes ten bytes each tenth of a second, and slaves whose disks sync in turn."""

    members: int = 3
    least: int = 2
    tracker: InSyncTracker = field(init=False)
    now_s: float = 0.0
    written: int = 100
    own_s: float = 0.0  # how long a sync of each disk takes
    slaves_s: dict[int, float] = field(default_factory=dict)
    links_s: float = 0.0  # how long a message and its acknowledgement take together
    ways: list[tuple[float, int, int]] = field(default_factory=list)  # acknowledgements: when each comes, whose, what
    due: dict[int, tuple[float, int]] = field(default_factory=dict)  # when which end is on the disk; 0: our own

    def __post_init__(self) -> None:
        self.tracker = InSyncTracker(100, 60, Term(1), InSyncPolicy(self.least, WAITS))
        self.tracker.share(100, 0.0)
        for place in range(1, self.members):
            hello = Hello("", "broker-a", place, f"store-{place}", EpochTable(), 0, 100, 0, 4096, 0, -1, "p")
            assert not self.tracker.meet(hello, "here", 0.0, 0)
            self.tracker.acknowledge(place, Ack(100, 100, 0), 100, 0.0)
        self.run(5.0)
        assert self.tracker.in_sync == list(range(self.members))

    def run(self, seconds: float, writes: bool = True) -> None:
        for _ in range(round(seconds * 10)):
            self.now_s += 0.1
            self.written += 10 if writes else 0
            for place in range(self.members):
                sync_s = self.slaves_s.get(place, 0.0) if place else self.own_s
                at_s, end = self.due.get(place, (self.now_s, self.written))
                if self.now_s >= at_s:
                    self.reached(place, end if sync_s else self.written)
                    self.due[place] = self.now_s + sync_s, self.written
            self.tracker.tick(self.written, self.now_s)

    def reached(self, place: int, end: int) -> None:
        if place and self.links_s:
            # Not all at the same moment: the second slave's are a little later.
            self.ways.append((self.now_s + self.links_s + 0.4 * (place - 1), place, end))
            arrived = [way for way in self.ways if way[0] <= self.now_s]
            self.ways = [way for way in self.ways if way not in arrived]
            for _, other, came in arrived:
                self.tracker.acknowledge(other, Ack(came, came, 0), self.written, self.now_s)
        elif place:
            self.tracker.acknowledge(place, Ack(self.written, end, 0), self.written, self.now_s)
        else:
            self.tracker.share(end, self.now_s)


@pytest.mark.parametrize("sync_s", [1.6, 3.3, 4.8, 20.0])
def test_a_slave_that_is_late_leaves_within_three_suspicions_and_stays_out(sync_s: float) -> None:
    group = Group()
    group.slaves_s[1] = sync_s
    group.run(15.0)
    assert group.tracker.in_sync == [0, 2]
    group.run(300.0)
    assert group.tracker.in_sync == [0, 2] and group.tracker.changes == 3, "it does not come and go"


def test_a_slave_that_is_in_time_stays() -> None:
    group = Group()
    group.slaves_s[1] = 0.7
    group.run(60.0)
    assert group.tracker.in_sync == [0, 1, 2]


def test_one_that_was_late_joins_when_it_has_been_quick_for_a_while_and_for_longer_each_time() -> None:
    group = Group()
    waited_s = []
    for _ in range(3):
        group.slaves_s[1] = 4.0
        group.run(20.0)
        assert group.tracker.in_sync == [0, 2]
        group.slaves_s[1] = 0.0
        begun_s = group.now_s
        while group.tracker.in_sync != [0, 1, 2]:
            group.run(0.1)
        waited_s.append(group.now_s - begun_s)
    assert waited_s[0] > 6.0 and waited_s[1] > 12.0 and waited_s[2] > 24.0


def test_how_late_a_slave_was_while_nothing_waited_for_it_does_not_count_once_it_has_joined() -> None:
    group = Group()
    group.tracker.lose(1, True, group.now_s)
    hello = Hello("", "broker-a", 1, "store-1", EpochTable(), 0, 100, 0, 4096, 0, -1, "p")
    group.tracker.meet(hello, "here", group.now_s, 0)
    group.due[1] = group.now_s + 30.0, group.written  # it is copied
    group.run(60.0)
    assert group.tracker.in_sync == [0, 1, 2]


def test_where_the_set_needs_it_a_late_slave_stays_and_joins_at_once() -> None:
    group = Group()
    group.slaves_s |= {1: 4.0, 2: 4.0}
    group.run(30.0)
    assert group.tracker.in_sync == [0, 1, 2], "both are late, and one of them is needed"
    group.slaves_s |= {2: 0.0}
    group.run(30.0)
    assert group.tracker.in_sync == [0, 2]
    group.tracker.lose(2, False, group.now_s)
    group.slaves_s[2] = NEVER
    group.due[2] = NEVER, 0
    group.run(10.0)
    assert group.tracker.in_sync == [0, 1], "it is late and there"


def test_a_slave_that_hangs_leaves_beside_one_that_is_only_late() -> None:
    group = Group()
    group.slaves_s |= {1: NEVER, 2: 4.0}
    group.run(15.0)
    assert group.tracker.in_sync == [0, 2]


@pytest.mark.parametrize(("members", "least"), [(4, 3), (5, 3), (7, 4)])
def test_as_many_late_slaves_leave_as_the_set_can_spare(members: int, least: int) -> None:
    group = Group(members, least)
    group.slaves_s |= dict.fromkeys(range(1, members - least + 1), 4.0)
    group.run(20.0)
    assert group.tracker.in_sync == [0, *range(members - least + 1, members)]


def test_a_master_whose_own_disk_is_late_says_so_while_enough_slaves_are_in_time() -> None:
    group = Group()
    group.own_s = 4.0
    group.run(3.0)
    assert not group.tracker.is_own_disk_late(group.now_s)
    group.run(12.0)
    assert group.tracker.is_own_disk_late(group.now_s)
    group.slaves_s[1] = 4.0
    group.run(10.0)
    assert not group.tracker.is_own_disk_late(group.now_s), "the next master would wait as well"


@pytest.mark.parametrize("way_s", [0.5, 2.0])
def test_a_master_whose_links_are_late_says_so_and_keeps_those_who_can_do_without_it(way_s: float) -> None:
    group = Group()
    group.links_s = 2 * way_s
    group.run(3.0)
    assert not group.tracker.are_links_late(group.now_s)
    group.run(12.0)
    assert group.tracker.are_links_late(group.now_s) == (2 * way_s > SLOW_S)
    assert group.tracker.in_sync == [0, 1, 2], "a slave that was late a moment earlier has not left"


def after_a_slow_while() -> Group:
    """Return a group whose slave 2 was slow for a moment, and is neither slow nor quick since; slave 1 becomes late."""
    group = Group()
    group.slaves_s[2] = 1.6
    group.run(3.0)
    group.slaves_s[2] = 1.0
    group.run(2.0)
    assert WAITS.late_s / 2 < group.tracker.slaves[2].late_s(group.now_s) < WAITS.late_s
    group.slaves_s[1] = 4.0
    return group


def test_a_slave_that_was_slow_for_a_while_keeps_no_late_one_in_the_set() -> None:
    group = after_a_slow_while()
    group.run(10.0)
    assert group.tracker.in_sync == [0, 2]


def test_a_slave_whose_changes_are_slow_now_and_then_keeps_no_late_one_in_the_set() -> None:
    group = after_a_slow_while()
    changes = group.tracker.slaves[2].changes
    for number in range(1, 5):
        changes.look(number - 1, number, group.now_s)
        group.run(1.6)
        changes.reached(number, number, group.now_s)
        group.run(2.4)
        changes.reached(number + 1, number + 1, group.now_s)  # quick
    assert group.tracker.in_sync == [0, 2]


def test_slow_disks_of_slaves_are_no_slow_links() -> None:
    group = Group()
    group.slaves_s |= {1: 4.0, 2: 4.0}
    for _ in range(300):
        group.run(0.1)
        for place in (1, 2):  # what has come is acknowledged before it is on the disk
            held = group.tracker.slaves[place].held
            group.tracker.acknowledge(place, Ack(group.written, held, 0), group.written, group.now_s)
    assert group.tracker.in_sync == [0, 1, 2]
    assert not group.tracker.are_links_late(group.now_s), "the next master would wait for one of them as well"


def end_links(group: Group, places: range) -> None:
    """Let the links of these slaves end, and not begin again."""
    for place in places:
        group.tracker.lose(place, is_leaving=False, now_s=group.now_s)
        group.slaves_s[place], group.due[place] = NEVER, (NEVER, 0)
    group.ways = [way for way in group.ways if way[1] not in places]


@pytest.mark.parametrize(("members", "least"), [(3, 2), (5, 3), (7, 2), (7, 4)])
def test_a_master_with_late_links_says_so_when_others_have_ended_and_few_slaves_are_left(
    members: int, least: int
) -> None:
    group = Group(members, least)
    group.links_s = 9.4
    group.run(4.0)
    end_links(group, range(least, members))  # they were silent for just long enough
    group.run(6.0)
    assert group.tracker.in_sync == [*range(least)]
    assert group.tracker.are_links_late(group.now_s)


def test_a_late_link_is_no_reason_while_another_slave_is_about_to_join() -> None:
    group = Group()
    end_links(group, range(2, 3))
    group.links_s = 9.4
    group.run(8.0)
    assert group.tracker.in_sync == [0, 1] and group.tracker.are_links_late(group.now_s)
    hello = Hello("", "broker-a", 2, "store-2", EpochTable(), 0, group.written, 0, 4096, 0, -1, "p")
    assert not group.tracker.meet(hello, "here", group.now_s, 0)
    assert not group.tracker.are_links_late(group.now_s), "it joins, and the late one leaves"


def test_nobody_leaves_when_those_who_remain_could_not_confirm_either() -> None:
    group = Group()
    for place in (1, 2):
        group.tracker.lose(place, False, group.now_s)
        group.due[place] = NEVER, 0
    group.run(20.0)
    assert group.tracker.in_sync == [0, 1, 2], "both may be the next one that has to be elected"
