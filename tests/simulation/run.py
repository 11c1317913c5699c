"""Runs seeds and says which are red.

    PYTHONPATH=tests python -m simulation.run --seeds 1:200        these seeds
    PYTHONPATH=tests python -m simulation.run --hours 0.1          as many as fit, from a new seed on
    PYTHONPATH=tests python -m simulation.run --seeds 17 --trace   the story of one

`make sim HOURS=` is the second.  A red seed is printed with the end of its story; the exit code is 1.  Started without
PYTHONHASHSEED it starts itself again with one, because the order of a set of texts depends on it.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import time

from simulation.plan import Outcome, Run
from simulation.world import Broken

_STORY_LINES = 60


def play(seed: int) -> Outcome | str:
    """One run, or why it is red."""
    run = Run(seed)
    try:
        return run.play()
    except Broken as problem:
        story = "\n".join(run.world.trace[-_STORY_LINES:])
        return f"seed {seed} is red: {problem}\n{story}"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="simulation.run", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", help="FROM or FROM:TO")
    parser.add_argument("--hours", type=float, default=0.0, help="go on for so long")
    parser.add_argument("--trace", action="store_true", help="print the story of each run")
    parser.add_argument("--log", action="store_true", help="the brokers' own log lines on stderr")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO if given.log else logging.CRITICAL + 1)
    # Python closes the coroutines of dead processes when it lets go of them; what they say then is of no interest.
    sys.unraisablehook = lambda unraisable: None
    first, last = _range(given.seeds) if given.seeds else (int(time.time()), sys.maxsize)
    deadline = time.monotonic() + given.hours * 3600 if given.hours else float("inf")
    red = done = faults = lives = 0
    for seed in range(first, last + 1):
        if time.monotonic() > deadline:
            break
        outcome = play(seed)
        gc.collect()  # a world is a ring, with all its disks in it
        done += 1
        if isinstance(outcome, str):
            red += 1
            print(outcome, flush=True)
            continue
        faults, lives = faults + outcome.faults, lives + outcome.lives
        if given.trace:
            print("\n".join(outcome.trace))
            print(f"seed {seed}: {outcome.summary}; {outcome.faults} faults, {outcome.lives} lives", flush=True)
    print(f"{done} seeds from {first} on, {red} red; {faults} faults, {lives} lives of a broker")
    return 1 if red else 0


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition(":")
    return int(first), int(last or first)


if __name__ == "__main__":
    if "PYTHONHASHSEED" not in os.environ:
        os.execve(
            sys.executable,
            [sys.executable, "-m", "simulation.run", *sys.argv[1:]],
            os.environ | {"PYTHONHASHSEED": "0"},
        )
    sys.exit(main())
