"""A handover that is given up leaves the master as it found it, and a master that was sealed meanwhile stays sealed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gantry.append.admit import WriteGate
from gantry.broker.group.handover import Handover
from gantry.replication.lease_renewal import Handed
from gantry.replication.members import Member
from gantry.replication.record import Holder
from gantry.replication.serving_lease import ServingLease
from testkit.simclock import SimClock


class Ticking:
    """A clock that goes on by half a second each time that it is read."""

    now_s = 0.0

    def monotonic(self) -> float:
        self.now_s += 0.5
        return self.now_s


@pytest.mark.parametrize("is_sealed", [False, True])
async def test_a_handover_that_is_given_up_serves_on_unless_the_master_was_sealed(is_sealed: bool) -> None:
    slave = SimpleNamespace(is_connected=True, member=Member(1, 0))
    serving_lease, gate = ServingLease(4.5, 3.0), WriteGate()
    serving_lease.renewed(0.0, 15)
    insync = SimpleNamespace(recorded={slave.member})
    group = SimpleNamespace(serving_lease=serving_lease, is_sealed=False, tell_tables=lambda: None)
    group.is_all_confirmed = True
    group.tracker = SimpleNamespace(slaves={1: slave}, insync=insync)

    def is_equal(place: int) -> bool:
        # Readers were stopped, and the second look finds that the slave went, or the master was sealed.
        if serving_lease.is_valid(1.0):
            return True
        group.is_sealed, slave.is_connected = is_sealed, False
        return False

    group.is_equal = is_equal

    async def renew() -> None:
        """The register takes it."""

    watcher = SimpleNamespace(lease_renewal=SimpleNamespace(renew=renew, why="", is_lost=False))
    handover = Handover(group, watcher, gate, SimClock(), lambda why: None)  # type: ignore[arg-type]
    answer = await handover.to([1], 5.0)
    assert answer is not None and answer.status == 503 and not gate.reasons
    assert serving_lease.is_valid(1.0) is not is_sealed


@pytest.mark.parametrize("is_there", [False, True])
async def test_a_master_that_stops_leaves_the_set_only_when_everybody_else_of_it_is_there(is_there: bool) -> None:
    me, heir = Member(0, 0), SimpleNamespace(is_connected=True, member=Member(1, 0), process="p1")
    other = SimpleNamespace(is_connected=is_there, member=Member(2, 0))
    serving_lease, left = ServingLease(4.5, 3.0), []
    serving_lease.renewed(0.0, 15)
    group = SimpleNamespace(
        serving_lease=serving_lease, is_sealed=False, tell_tables=lambda: None, is_equal=lambda place: True
    )
    group.is_all_confirmed = True
    group.ask_promise = lambda place: SimpleNamespace(done=lambda: True)
    insync = SimpleNamespace(recorded={me, heir.member, other.member})
    group.tracker = SimpleNamespace(slaves={1: heir, 2: other}, insync=insync)

    async def renew() -> None:
        """The register takes it."""

    async def hand_over(target: Holder, is_leaving: bool) -> Handed:
        left.append((target, is_leaving))
        return Handed.DONE

    lease_renewal = SimpleNamespace(renew=renew, hand_over=hand_over, why="", is_lost=False)
    watcher = SimpleNamespace(lease_renewal=lease_renewal, lose=lambda: None)
    handover = Handover(group, watcher, WriteGate(), SimClock(), lambda why: None)  # type: ignore[arg-type]
    assert await handover.to([1], 5.0, is_leaving=True) is None
    assert left == [(Holder(heir.member, "p1"), is_there)]


async def test_a_master_that_stops_hands_over_to_the_member_that_has_everything_first() -> None:
    hung, well = (SimpleNamespace(is_connected=True, member=Member(each, 0), held=9, process="p") for each in (1, 2))
    serving_lease, handed = ServingLease(4.5, 3.0), []
    serving_lease.renewed(0.0, 15)
    group = SimpleNamespace(
        serving_lease=serving_lease,
        is_sealed=False,
        is_all_confirmed=False,  # the one whose disk hangs is in the set
        tell_tables=lambda: None,
        is_equal=lambda place: place == 2,
        ask_promise=lambda place: SimpleNamespace(done=lambda: True),
    )
    insync = SimpleNamespace(recorded={Member(0, 0), hung.member, well.member})
    group.tracker = SimpleNamespace(slaves={1: hung, 2: well}, insync=insync)

    async def renew() -> None:
        """The register takes it."""

    async def hand_over(target: Holder, is_leaving: bool) -> Handed:
        handed.append(target.member.ordinal)
        return Handed.DONE

    lease_renewal = SimpleNamespace(renew=renew, hand_over=hand_over, why="", is_lost=False)
    watcher = SimpleNamespace(lease_renewal=lease_renewal, lose=lambda: None)
    handover = Handover(group, watcher, WriteGate(), Ticking(), lambda why: None)  # type: ignore[arg-type]
    assert handover.heirs() == [1, 2]
    assert await handover.to(handover.heirs(), 5.0) is None and handed == [2]
