"""Seeds of faults that stay or come one after the other, of mistaken terms, and of histories of clients.

Each kind says in its module what goes wrong and what must hold.  All seeds but those of `history`, `answered` and
`admin`, which are red when the code is broken on purpose (tests/planted.txt), were red once:

    slow        producers were never told in time by a master that waits for a slow member, or is one
    linked      a master whose links to all slaves were slow, and not silent, led for ever and confirmed too late
    register    a write that was carried out and answered late kept a lost slave in the set for ever (1, 9); a renewal
                waited for the time-out of the one before, and a master that was alone had no lease meanwhile (92006)
    twice       a promotion kept only those who were heard, and who had everything could not lead after the next fault
    standing    a master with one slave too few was not sealed: the slave that still followed it did not count
    sides       a master without a serving lease stayed the master at a name server on its side
    mismatch    a coordinator promoted while a master that acknowledges alone still had its lease
"""

from __future__ import annotations

import pytest

from simulation.test_simulation import seeds

# The first one of each belongs to each commit, the others are slow.
SEEDS = {
    "slow": (14, 4, 16),
    "linked": (4, 8, 14),
    "register": (92006, 1, 9),
    "twice": (1, 4, 13),
    "sides": (1, 3, 7),
    "standing": (27,),
    "mismatch": (13, 16),
    "history": (3, 1, 2, 4, 5, 10),
    "answered": (5, 4),
    "admin": (8, 2),
}


def every() -> list[object]:
    """Each seed with its kind."""
    return [
        pytest.param(kind, seed, marks=[pytest.mark.slow] if seed != these[0] else [])
        for kind, these in SEEDS.items()
        for seed in these
    ]


@pytest.mark.parametrize(("kind", "seed"), every())
def test_a_seed_that_found_something_stays_green(kind: str, seed: int) -> None:
    ran = seeds("--kind", kind, "--seeds", str(seed))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.startswith(f"1 seeds from {seed} on, 0 red; ")
