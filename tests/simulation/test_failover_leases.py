"""No former master acknowledges alone, or serves readers for longer than documented; see `failover_leases`."""

from __future__ import annotations

import pytest

from gantry.failover.decide import MARGIN_S
from gantry.failover.notes import RENEWED_BEFORE
from gantry.replication.serving_lease import ServingLease
from gantry.replication.timers import TIMERS, derive_serving_waits
from simulation.failover_leases import CASES, LeaseCase, Ticks, search


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_former_master_stops_in_time(case: LeaseCase) -> None:
    verdict = search(case.rules)
    told = f"{verdict.states} states, {verdict.fault!r} after {' '.join(verdict.trace)}"
    assert bool(verdict.fault) == case.is_wrong, told


@pytest.mark.parametrize("name", sorted(TIMERS))
def test_the_times_are_in_the_order_of_the_ticks(name: str) -> None:
    timers = TIMERS[name]
    waits = derive_serving_waits(timers.renew_every_s)
    alone = ServingLease(waits.fresh_s, waits.heard_s)
    alone.renewed(0.0, timers.lease_s)
    ticks, suspicion_s = Ticks(), timers.suspect_after_s
    assert ticks.heard < ticks.fresh and waits.heard_s < waits.fresh_s
    assert ticks.fresh + ticks.quiet_before <= ticks.suspicion
    assert waits.fresh_s + RENEWED_BEFORE * suspicion_s <= suspicion_s
    assert ticks.heard + ticks.unwell_before <= ticks.suspicion
    assert waits.heard_s + timers.poll_every_s + timers.answer_within_s <= suspicion_s
    assert ticks.suspicion < ticks.alone < ticks.lease
    assert suspicion_s < alone.until_s < timers.lease_s + MARGIN_S
