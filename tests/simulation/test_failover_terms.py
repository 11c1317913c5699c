"""No master acknowledges after one of a higher epoch, whatever members are configured as; see `failover_terms`."""

from __future__ import annotations

import pytest

from simulation.failover_terms import CASES, TermCase, search


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_former_master_that_may_acknowledge_alone_is_waited_for(case: TermCase) -> None:
    verdict = search(case.rules)
    told = f"{verdict.states} states, {verdict.fault!r} after {' '.join(verdict.trace)}"
    assert bool(verdict.fault) == case.is_wrong, told
