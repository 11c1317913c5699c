"""A handover that is given up leaves the master as it found it, and a master that was sealed meanwhile stays sealed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gantry.append.admit import WriteGate
from gantry.broker.group.handover import Handover
from gantry.replication.members import Member
from gantry.replication.permit import Permit
from gantry.replication.record import Holder
from gantry.replication.tenure import Handed
from testkit.simclock import SimClock


@pytest.mark.parametrize("is_sealed", [False, True])
async def test_a_handover_that_is_given_up_serves_on_unless_the_master_was_sealed(is_sealed: bool) -> None:
    permit, gate, slave = Permit(3.0), WriteGate(), SimpleNamespace(is_connected=True, member=Member(1, 0))
    permit.renewed(0.0, 15)
    insync = SimpleNamespace(recorded={slave.member})
    group = SimpleNamespace(permit=permit, is_sealed=False, tell_tables=lambda: None)
    group.mastery = SimpleNamespace(slaves={1: slave}, insync=insync)

    def is_equal(place: int) -> bool:
        # Readers were stopped, and the second look finds that the slave went, or the master was sealed.
        if permit.is_valid(1.0):
            return True
        group.is_sealed, slave.is_connected = is_sealed, False
        return False

    group.is_equal = is_equal

    async def renew() -> None:
        """The register takes it."""

    office = SimpleNamespace(tenure=SimpleNamespace(renew=renew, why="", is_lost=False))
    handover = Handover(group, office, gate, SimClock(), lambda why: None)  # type: ignore[arg-type]
    answer = await handover.to(1, 5.0)
    assert answer is not None and answer.status == 503 and not gate.reasons
    assert permit.is_valid(1.0) is not is_sealed


@pytest.mark.parametrize("is_there", [False, True])
async def test_a_master_that_stops_leaves_the_set_only_when_everybody_else_of_it_is_there(is_there: bool) -> None:
    me, heir = Member(0, 0), SimpleNamespace(is_connected=True, member=Member(1, 0), process="p1")
    other = SimpleNamespace(is_connected=is_there, member=Member(2, 0))
    permit, left = Permit(3.0), []
    permit.renewed(0.0, 15)
    group = SimpleNamespace(permit=permit, is_sealed=False, tell_tables=lambda: None, is_equal=lambda place: True)
    group.ask_promise = lambda place: SimpleNamespace(done=lambda: True)
    insync = SimpleNamespace(recorded={me, heir.member, other.member})
    group.mastery = SimpleNamespace(slaves={1: heir, 2: other}, insync=insync)

    async def renew() -> None:
        """The register takes it."""

    async def hand_over(target: Holder, is_leaving: bool) -> Handed:
        left.append((target, is_leaving))
        return Handed.DONE

    tenure = SimpleNamespace(renew=renew, hand_over=hand_over, why="", is_lost=False)
    office = SimpleNamespace(tenure=tenure, lose=lambda: None)
    handover = Handover(group, office, WriteGate(), SimClock(), lambda why: None)  # type: ignore[arg-type]
    assert await handover.to(1, 5.0, is_leaving=True) is None
    assert left == [(Holder(heir.member, "p1"), is_there)]
