"""Look at the failover model within its full bounds: `make model`; some hours on one core, and up to 2 GB.

Writes tests/simulation/failover_results.txt: for each case what was found, after how many states, and for a fault a
shortest way to it.  Arguments choose cases by a part of their name and write nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from simulation import failover_terms
from simulation.failover_cases import FOUND, FULL, HARMLESS, SAFE, Case
from simulation.failover_search import Verdict, search
from simulation.failover_terms import TermCase

STATES_MAX = 3_000_000  # of one case; what is larger is cut, and says so
RESULTS = Path(__file__).with_name("failover_results.txt")
_SECTIONS: tuple[tuple[str, Sequence[Case | TermCase]], ...] = (
    ("A rule that is switched off", FOUND),
    ("A rule without which the model stays safe", HARMLESS),
    ("All rules, the bounds of each commit", SAFE),
    ("Terms and leases (`failover_terms`), the bounds of each commit", failover_terms.CASES),
    ("Terms and leases, full bounds", failover_terms.FULL_CASES),
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


def _looked_at(case: Case | TermCase) -> tuple[Verdict, bool]:
    """Return what a case found, and whether it has to."""
    if isinstance(case, TermCase):
        found = failover_terms.search(case.rules)
        return found, bool(found.fault) == case.is_wrong
    verdict = search(case.rules, STATES_MAX)
    return verdict, (case.fault in verdict.fault and bool(verdict.fault)) == (case in FOUND)


def _shown(case: Case | TermCase, verdict: Verdict) -> list[str]:
    if verdict.fault:
        return [f"  {case.name}: {verdict.fault}, {verdict.states} states seen", f"      {' '.join(verdict.trace)}"]
    how = "all of" if verdict.is_whole else "nothing wrong, cut after"
    return [f"  {case.name}: {'safe, ' if verdict.is_whole else ''}{how} {verdict.states} states"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
