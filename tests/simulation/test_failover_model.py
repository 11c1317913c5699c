"""The failover protocol is safe with all its rules, and each rule that it needs is needed; see `failover_model`."""

from __future__ import annotations

import pytest

from simulation.failover_cases import FOUND, HARMLESS, SAFE, Case
from simulation.failover_search import search


@pytest.mark.parametrize("case", FOUND, ids=lambda case: case.name)
def test_a_rule_switched_off_leads_to_a_fault(case: Case) -> None:
    verdict = search(case.rules)
    assert verdict.fault and case.fault in verdict.fault, f"{verdict.states} states, found {verdict.fault!r}"


@pytest.mark.parametrize("case", [*SAFE, *HARMLESS], ids=lambda case: case.name)
def test_nothing_bad_can_be_reached(case: Case) -> None:
    verdict = search(case.rules)
    assert verdict.is_whole, f"{verdict.fault} after {' '.join(verdict.trace)}"
