"""No delay of a master's links keeps producers from their SEND_OK, whatever the group's size and the direction.

A delay is silence from some length on, and a late acknowledgement below that; between the two, where some links end and
others do not, a master led for ever whose messages were all too late (3/2/both/4.7 with seed 4 was red).  Each case is
judged as `slowplan` says: from three times the suspicion on, more than 99 of 100 calls end well.
"""

from __future__ import annotations

import pytest

from simulation.test_simulation import seeds

# Members, minInSync, ways, seconds each way; and a seed. The first two belong to each commit, the others are slow.
CASES = (
    ("3/2/both/4.7", 4),
    ("2/1/both/4.8", 5),
    ("3/2/both/1.5", 1),
    ("3/2/out/2.4", 2),
    ("3/2/in/4.9", 3),
    ("3/1/both/4.7", 4),
    ("4/2/both/4.8", 1),
    ("4/3/in/3", 2),
    ("4/3/both/4.9", 6),
    ("5/2/both/4.6", 3),
    ("5/3/out/4.8", 5),
    ("5/4/both/2.4", 7),
    ("5/4/both/4.8", 2),
    ("6/4/both/4.7", 1),
    ("7/2/both/4.8", 4),
    ("7/2/out/10", 2),
    ("7/3/in/20", 1),
    ("7/4/both/4.9", 3),
)


def every() -> list[object]:
    """Each case, slow but for the first two."""
    return [pytest.param(*case, marks=[] if case in CASES[:2] else [pytest.mark.slow]) for case in CASES]


@pytest.mark.parametrize(("links", "seed"), every())
def test_producers_are_answered_in_time_however_late_the_links_of_a_master_are(links: str, seed: int) -> None:
    ran = seeds("--links", links, "--seeds", str(seed))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.startswith(f"1 seeds from {seed} on, 0 red; ")
