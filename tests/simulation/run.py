"""Runs seeds and says which are red.

    PYTHONPATH=tests python -m simulation.run --seeds 1:200        these seeds
    PYTHONPATH=tests python -m simulation.run --hours 0.1          as many as fit, from a new seed on
    PYTHONPATH=tests python -m simulation.run --seeds 17 --trace   the story of one
    ... --kind group --seeds 17                                    of one kind only (see KINDS), else all
    ... --links 3/2/both/4.7 --seeds 4                             of kind `linked`, with these links (`slowplan.Links`)
    ... --coverage --hours 0.1                                     and how much of the storeys that must not lose
                                                                   anything was run

    kind                what goes wrong                             what must hold; always: no loss, no two masters
    pair                all sorts of things, with static roles      slaves have the master's log
    group, sink, pop    all sorts of things, with a register        it settles; batches once; pops until acknowledged
    terms, versions     the same, while changes are rolled out
    mismatch            members and coordinators differ in terms
    history             as in group                                 topics, queue locks and commits fit a model
    admin               a disk, link, register, name server is slow or hangs   99 of 100 changes are answered in time
    answered            the master goes right after an answer       the next one has what was answered
    standing, struck    a fault of ways or of one member stays      somebody leads who confirms, in 3 suspicions
    slow, linked        a disk, links or the register are slow      99 of 100 sends end well, after 3 suspicions
    register            it works in part, and a member is lost      the same
    sides               the master and some name servers are cut    the same, when its lease has ended
    twice               a fault, a heal, another fault              somebody leads after the second one

`make sim HOURS=` is the second, with COVERAGE=1 the last.  A red seed is printed with the end of its story; the exit
code is 1.  Started without PYTHONHASHSEED it starts itself again with one, because the order of a set of texts depends
on it.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings

from simulation.adminplan import AdminRun
from simulation.answeredplan import AnsweredRun
from simulation.groupplan import GroupRun, SinkRun
from simulation.historyplan import HistoryRun
from simulation.mismatchplan import MismatchRun
from simulation.plan import Outcome, Run
from simulation.popplan import PopRun
from simulation.registerplan import RegisterRun
from simulation.sidesplan import SidesRun
from simulation.slowplan import LinkedRun, Links, SlowRun
from simulation.standingplan import StandingRun
from simulation.struckplan import StruckRun
from simulation.termsplan import TermsRun
from simulation.twiceplan import TwiceRun
from simulation.versionsplan import VersionsRun
from simulation.world import Broken

_STORY_LINES = 60
_STOREYS = ("replication", "failover", "transaction", "append", "pop", "store")
_COVERED = ",".join(f"*/gantry/{storey}/*" for storey in _STOREYS)
_COVERAGE = [f"--data-file={tempfile.gettempdir()}/gantry-simulation-{os.getuid()}.coverage", f"--rcfile={os.devnull}"]
Kind = type[Run] | type[GroupRun]
KINDS: dict[str, Kind] = {
    "pair": Run,
    "group": GroupRun,
    "sink": SinkRun,
    "pop": PopRun,
    "standing": StandingRun,
    "struck": StruckRun,
    "slow": SlowRun,
    "linked": LinkedRun,
    "register": RegisterRun,
    "twice": TwiceRun,
    "sides": SidesRun,
    "mismatch": MismatchRun,
    "history": HistoryRun,
    "answered": AnsweredRun,
    "admin": AdminRun,
    "terms": TermsRun,
    "versions": VersionsRun,
}


def play(kind: str, seed: int, links: Links | None = None) -> Outcome | str:
    """One run, or why it is red."""
    run = KINDS[kind](seed) if links is None else LinkedRun(seed, links)
    try:
        return run.play()
    except Broken as problem:
        story = "\n".join(run.world.trace[-_STORY_LINES:])
        return f"{kind} seed {seed} is red: {problem}\n{story}"
    finally:
        run.world.end()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="simulation.run", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", help="FROM or FROM:TO")
    parser.add_argument("--kind", choices=[*KINDS, "all"], default="all", help="pair: static roles; group: register")
    parser.add_argument("--links", type=Links.read, help="MEMBERS/MINIMUM/WAYS/SECONDS: kind linked, with these links")
    parser.add_argument("--hours", type=float, default=0.0, help="go on for so long")
    parser.add_argument("--trace", action="store_true", help="print the story of each run")
    parser.add_argument("--log", action="store_true", help="the brokers' own log lines on stderr")
    parser.add_argument("--coverage", action="store_true", help="print line coverage of what must not lose anything")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO if given.log else logging.CRITICAL + 1)
    # Python closes the coroutines of dead processes when it lets go of them; what they say then is of no interest.
    sys.unraisablehook = lambda unraisable: None
    warnings.simplefilter("ignore", RuntimeWarning)  # so it says of coroutines that their processes never began
    # What was imported stays; a world has a hundred thousand objects that live until its end.
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    first, last = _range(given.seeds) if given.seeds else (int(time.time()), sys.maxsize)
    deadline = time.monotonic() + given.hours * 3600 if given.hours else float("inf")
    kinds = list(KINDS) if given.kind == "all" else [given.kind]
    kinds = kinds if given.links is None else ["linked"]
    red = done = faults = lives = 0
    for seed in range(first, last + 1):
        for kind in kinds:
            if time.monotonic() > deadline:
                break
            outcome = play(kind, seed, given.links)
            gc.collect()  # a world is a ring, with all its disks in it
            done += 1
            if isinstance(outcome, str):
                red += 1
                print(outcome, flush=True)
                continue
            faults, lives = faults + outcome.faults, lives + outcome.lives
            if given.trace:
                print("\n".join(outcome.trace))
                told = f"{outcome.summary}; {outcome.faults} faults, {outcome.lives} lives"
                print(f"{kind} seed {seed}: {told}", flush=True)
        if time.monotonic() > deadline:
            break
    if given.coverage:
        _report()
    print(f"{done} seeds from {first} on, {red} red; {faults} faults, {lives} lives of a broker")
    return 1 if red else 0


def _begin_again() -> None:
    """With a hash seed, and under `coverage` when that is wanted: both have to be there before the first import."""
    command = [sys.executable, "-m", "simulation.run"]
    if "--coverage" in sys.argv:
        command[2:2] = ["coverage", "run", f"--include={_COVERED}", *_COVERAGE, "-m"]
    os.execve(sys.executable, [*command, *sys.argv[1:]], os.environ | {"PYTHONHASHSEED": "0"})


def _report() -> None:
    """What was run, file by file; the data are written when the process ends."""
    command = [sys.executable, "-m", "coverage", "report", *_COVERAGE, "--precision=1"]
    atexit.register(lambda: subprocess.run(command, check=False))


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition(":")
    return int(first), int(last or first)


if __name__ == "__main__":
    if "PYTHONHASHSEED" not in os.environ:
        _begin_again()
    sys.exit(main())
