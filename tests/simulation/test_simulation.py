"""Seeds over a real broker on a virtual loop; see `simulation.plan` for what goes wrong in them and what must hold."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.ledger import Attempt, Found, Ledger
from simulation.poppers import Handle, PopLedger
from simulation.world import Broken
from testkit import cpubound
from testkit.popplay import Popped

HERE = Path(__file__).parent
TESTS = HERE.parent
# The first ones belong to each commit, the others are slow.
SEEDS = 8, 16  # of brokers with static roles
GROUP_SEEDS = 10, 20  # of groups with a register
SINK_SEEDS = 4, 12  # of groups with a sink of Spark's besides
POP_SEEDS = 4, 12  # of groups whose messages are popped besides
TERMS_SEEDS = 3  # of groups whose role and minInSync change
VERSIONS_SEEDS = 3, 12  # of groups whose members are of different versions
STANDING_SEEDS = 3  # of groups in which each fault stays until producers are answered all the same


def blocks(first: int, last: int, size: int) -> list[object]:
    """Where each block of seeds begins; those behind the first are slow."""
    begins = range(1, last + 1, size)
    return [pytest.param(one, marks=[pytest.mark.slow] if one > first else []) for one in begins]


def seeds(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, as `make sim` starts it."""
    paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "simulation.run", *arguments]
    return cpubound.run(command, environment)


@pytest.mark.parametrize("first", blocks(*SEEDS, 4))
def test_nothing_that_was_promised_is_lost_whatever_goes_wrong(first: int) -> None:
    ran = seeds("--kind", "pair", "--seeds", f"{first}:{first + 3}")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.startswith(f"4 seeds from {first} on, 0 red")


@pytest.mark.parametrize("first", blocks(*GROUP_SEEDS, 5))
def test_nothing_that_was_promised_is_lost_no_matter_who_leads_and_whatever_goes_wrong(first: int) -> None:
    ran = seeds("--kind", "group", "--seeds", f"{first}:{first + 4}")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.startswith(f"5 seeds from {first} on, 0 red")


@pytest.mark.parametrize("first", blocks(*SINK_SEEDS, 4))
def test_a_batch_of_a_sink_is_there_once_no_matter_who_dies(first: int) -> None:
    ran = seeds("--kind", "sink", "--seeds", f"{first}:{first + 3}")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.startswith(f"4 seeds from {first} on, 0 red")


@pytest.mark.parametrize("first", blocks(*POP_SEEDS, 4))
def test_what_is_popped_comes_until_it_is_acknowledged_and_never_again(first: int) -> None:
    ran = seeds("--kind", "pop", "--seeds", f"{first}:{first + 3}", "--trace")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"4 seeds from {first} on, 0 red" in ran.stdout
    again = [int(count) for count in re.findall(r"(\d+) of them of messages that came before", ran.stdout)]
    assert len(again) == 4 and min(again) > 0


def test_somebody_leads_under_every_standing_fault() -> None:
    ran = seeds("--kind", "standing", "--seeds", f"1:{STANDING_SEEDS}")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.startswith(f"{STANDING_SEEDS} seeds from 1 on, 0 red")


def test_nothing_that_was_promised_is_lost_while_a_group_changes_its_terms() -> None:
    ran = seeds("--kind", "terms", "--seeds", f"1:{TERMS_SEEDS}")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.startswith(f"{TERMS_SEEDS} seeds from 1 on, 0 red")


@pytest.mark.parametrize("first", blocks(*VERSIONS_SEEDS, 3))
def test_nothing_that_was_promised_is_lost_while_members_are_of_different_versions(first: int) -> None:
    ran = seeds("--kind", "versions", "--seeds", f"{first}:{first + 2}", "--trace")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"3 seeds from {first} on, 0 red" in ran.stdout
    assert "its next process is the next version" in ran.stdout


@pytest.mark.slow  # each of them has a test of its own
def test_seeds_that_were_red_stay_green() -> None:
    lines = (HERE / "regressions.txt").read_text().splitlines()
    for line in [line for line in lines if not line.startswith("#")]:
        kind, seed, _ = line.split(maxsplit=2)
        ran = seeds("--kind", kind, "--seeds", seed)
        assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("kind", ["pair", "group", "sink"])
def test_a_seed_tells_the_same_story_twice(kind: str) -> None:
    first, second = (seeds("--kind", kind, "--seeds", "3", "--trace") for _ in range(2))
    assert first.stdout == second.stdout
    assert f"{kind} seed 3: " in first.stdout


def test_faults_happen() -> None:
    told = re.search(r"(\d+) faults, (\d+) lives", seeds("--kind", "pair", "--seeds", "5", "--trace").stdout)
    assert told is not None and int(told[1]) >= 5 and int(told[2]) >= 3


def test_groups_change_their_masters() -> None:
    told = seeds("--kind", "group", "--seeds", "14:16", "--trace").stdout
    assert sum(int(count) for count in re.findall(r"(\d+) failovers", told)) >= 3
    assert "Sealed" in told and "cut, " in told


# -- the ledger itself


def acknowledged(body: bytes, offset: int, sent_at: float = 1.0, producer: str = "p") -> Attempt:
    return Attempt(body, producer, "orders", 0, sent_at, acked_at=sent_at + 0.1, offset=offset)


def ledger(*attempts: Attempt) -> Ledger:
    return Ledger(is_sync=True, attempts={one.body: one for one in attempts})


def found(*bodies: bytes) -> dict[tuple[str, int], list[Found]]:
    return {("orders", 0): [Found(body, number, 0) for number, body in enumerate(bodies)]}


def test_a_kept_promise_is_kept() -> None:
    assert "2 acknowledged" in ledger(acknowledged(b"a", 0), acknowledged(b"b", 1, 2.0)).check(found(b"a", b"b"))


@pytest.mark.parametrize(
    ("attempts", "log", "why"),
    [
        ((acknowledged(b"a", 0),), found(), "acknowledged at 1.100 and is not there"),
        ((acknowledged(b"a", 0),), found(b"a", b"a"), "is there 2 times"),
        ((acknowledged(b"a", 0),), found(b"a", b"x"), "nobody sent"),
        ((acknowledged(b"a", 1),), found(b"a"), "acknowledged at offset 1 and is at 0"),
        ((acknowledged(b"a", 1), acknowledged(b"b", 0, 2.0)), found(b"b", b"a"), "stands before"),
        ((acknowledged(b"a", 1), acknowledged(b"b", 0, 2.0, "other")), found(b"b", b"a"), "stands before"),
        ((Attempt(b"a", "p", "orders", 0, 1.0, 1.1, 0, True, True),), found(), "was committed and is not there"),
        ((Attempt(b"a", "p", "orders", 0, 1.0, 1.1, 0, True, False),), found(b"a"), "not to be committed"),
        ((Attempt(b"a", "p", "orders", 0, 1.0, 1.1, 0, due_ms=5),), found(b"a"), "5 ms early"),
    ],
)
def test_a_broken_promise_is_found(
    attempts: tuple[Attempt, ...], log: dict[tuple[str, int], list[Found]], why: str
) -> None:
    with pytest.raises(Broken, match=why):
        ledger(*attempts).check(log)


def test_what_was_read_may_not_change() -> None:
    one = ledger(acknowledged(b"a", 0))
    one.saw(("orders", 0), Found(b"b", 0, 0))
    with pytest.raises(Broken, match="first b'b' was read there, then b'a'"):
        one.check(found(b"a"))


def test_a_power_cut_may_take_what_async_flush_had_not_flushed() -> None:
    one = Ledger(is_sync=False, attempts={b"a": acknowledged(b"a", 0), b"b": acknowledged(b"b", 1, 9.0)})
    one.cut(5.0)
    one.check(found(b"a"))
    with pytest.raises(Broken, match=r"b'a', sent at 1\.000"):
        one.check(found())


# -- the ledger of poppers


def handle(name: str, asked_at: float, body: bytes = b"a") -> Handle:
    return Handle(Popped(name, "orders", 0, 0, body, 0, {}), asked_at, asked_at + 0.1)


def test_what_comes_again_after_its_acknowledgement_is_found() -> None:
    told = PopLedger()
    first = handle("h1", 1.0)
    told.came(first)
    told.acknowledged(first, 2.0, 2.1, is_open=True)
    told.came(handle("h2", 2.05))  # asked for before the answer
    assert not told.broken
    told.came(handle("h3", 2.2))
    assert "was acknowledged at 2.100 and came to a pop of 2.200" in told.broken[0]


def test_a_handle_beside_a_newer_one_is_found() -> None:
    told = PopLedger()
    first = handle("h1", 1.0)
    for one in (first, handle("h2", 1.5)):
        told.came(one)
    told.acknowledged(first, 1.55, 1.7, is_open=True)  # sent before the newer one came
    assert not told.broken
    told.acknowledged(first, 1.8, 1.9, is_open=True)
    assert "'h1' was valid beside 'h2'" in told.broken[0]


def test_what_is_owed_was_sent_and_is_not_settled() -> None:
    told = PopLedger()
    attempts = [acknowledged(body, 0) for body in (b"a", b"b", b"c")]
    told.came(handle("h1", 1.0))
    told.acknowledged(told.handles[b"a"][0], 1.2, 1.3, is_open=True)
    told.doubtful.add(b"b")
    half = Attempt(b"h", "p", "orders", 0, 1.0, 1.1, 0, True, False)
    assert [one.body for one in told.owed([*attempts, half, Attempt(b"u", "p", "orders", 0, 1.0)])] == [b"c"]
