"""Look at the failover model within its full bounds: `make model`; some hours on one core, and up to 2 GB.

Writes tests/simulation/failover_results.txt: for each case what was found, after how many states, and for a fault a
shortest way to it.  In the full bounds, states that differ in the numbers of the members only count once
(`failover_symmetry`).  Arguments choose cases by a part of their name and write nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from simulation import failover_leases, failover_terms
from simulation.failover_cases import FOUND, FULL, HARMLESS, SAFE, Case
from simulation.failover_leases import LeaseCase
from simulation.failover_search import Verdict, search
from simulation.failover_terms import TermCase

STATES_MAX = 3_000_000  # of one case; what is larger is cut, and says so
RESULTS = Path(__file__).with_name("failover_results.txt")
_AnyCase = Case | TermCase | LeaseCase
_SECTIONS: tuple[tuple[str, Sequence[_AnyCase]], ...] = (
    ("A rule that is switched off", FOUND),
    ("A rule without which the model stays safe", HARMLESS),
    ("All rules, the bounds of each commit", SAFE),
    ("Terms (`failover_terms`), the bounds of each commit", failover_terms.CASES),
    ("Terms, full bounds", failover_terms.FULL_CASES),
    ("Leases by the clock (`failover_leases`), the bounds of each commit", failover_leases.CASES),
    ("Leases by the clock, full bounds", failover_leases.FULL_CASES),
    ("All rules, full bounds", FULL),
)


def main(wanted: list[str]) -> int:
    """Run the cases; 1 when one of them has not the result that it must have."""
    failed = 0
    lines = ["What `make model` found.  A trace is a shortest one; `send0@1` is message 0 written by member 1.", ""]
    for title, cases in _SECTIONS:
        lines += [title, ""]
        for case in cases:
            if wanted and not any(part in case.name for part in wanted):
                continue
            verdict, is_good = _looked_at(case)
            failed += not is_good
            lines += _shown(case, verdict)
            print(*_shown(case, verdict), sep="\n", flush=True)
            if not wanted:
                RESULTS.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
        lines.append("")
    return 1 if failed else 0


def _looked_at(case: _AnyCase) -> tuple[Verdict, bool]:
    """Return what a case found, and whether it has to."""
    if isinstance(case, Case):
        verdict = search(case.rules, STATES_MAX, _is_alike(case))
        return verdict, (case.fault in verdict.fault and bool(verdict.fault)) == (case in FOUND)
    found = failover_terms.search(case.rules) if isinstance(case, TermCase) else failover_leases.search(case.rules)
    return found, bool(found.fault) == case.is_wrong


def _is_alike(case: _AnyCase) -> bool:
    """Return whether states that differ in the numbers of the members only are looked at once."""
    return isinstance(case, Case) and case in FULL and not case.rules.register_losses


def _shown(case: _AnyCase, verdict: Verdict) -> list[str]:
    if verdict.fault:
        return [f"  {case.name}: {verdict.fault}, {verdict.states} states seen", f"      {' '.join(verdict.trace)}"]
    how = "safe, all of" if verdict.is_whole else "nothing wrong, cut after"
    return [f"  {case.name}: {how} {verdict.states} states{' but for numbers' if _is_alike(case) else ''}"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
