"""What the comparison with Apache's broker makes of its rounds, and what it calls a quiet machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(_BENCH))

import comparereport  # noqa: E402 - its folder is no package
from comparereport import Round  # noqa: E402
from quiet import Noise, Watch  # noqa: E402

_QUIET, _BUSY = Noise(others=0.05, steal=0.0, load=1.0), Noise(others=0.3, steal=0.0, load=9.0)


def _rounds(*rates: tuple[float, float], noise: Noise = _QUIET) -> list[Round]:
    return [
        Round("sends", "send", side, number, {"rate": rate, "cpu_us_per_message": 1e6 / rate}, noise)
        for number, pair in enumerate(rates)
        for side, rate in zip(("ours", "apache"), pair, strict=True)
    ]


def test_a_ratio_is_one_of_the_same_round() -> None:
    (row,) = comparereport.rows_of(_rounds((200, 100), (90, 30), (40, 10)))
    assert row.metrics["rate"].ratios == (2.0, 3.0, 4.0)
    assert row.metrics["rate"].spread == "3.00 (2.00 to 4.00)"
    assert (row.metrics["rate"].ours, row.metrics["rate"].apache) == (90, 30)


def test_a_round_without_its_neighbour_does_not_count() -> None:
    (row,) = comparereport.rows_of(_rounds((200, 100), (90, 30))[:3])
    assert row.rounds == 1
    assert row.metrics["rate"].ratios == (2.0,)


def test_a_metric_that_was_not_measured_is_left_out() -> None:
    rounds = [Round("sends", "send", side, 0, {"rate": 1.0, "p50_us": -1.0}, _QUIET) for side in ("ours", "apache")]
    assert set(comparereport.rows_of(rounds)[0].metrics) == {"rate"}


def test_a_round_with_other_work_under_either_broker_is_marked() -> None:
    rounds = _rounds((2, 1), (2, 1))
    rounds[3] = Round("sends", "send", "apache", 1, {"rate": 1.0}, _BUSY)
    (row,) = comparereport.rows_of(rounds)
    assert (row.marked, row.rounds) == (1, 2)


@pytest.mark.parametrize("noise", [Noise(0.11, 0.0, 1.0), Noise(0.0, 0.03, 1.0)], ids=["others", "steal"])
def test_other_work_and_steal_are_noise(noise: Noise) -> None:
    assert noise.is_marked and not _QUIET.is_marked


def test_a_contest_that_ran_again_replaces_its_rounds_and_leaves_the_others(tmp_path: Path) -> None:
    run = comparereport.Run("today", "a machine", (1.0, 1.0, 1.0), "make bench-compare")
    for contest, rates in (("sends", (2, 1)), ("pulls", (3, 1)), ("sends", (8, 1))):
        comparereport.keep(tmp_path, contest, run, _rounds(rates))
    _, rounds = comparereport.kept(tmp_path, ["pulls", "sends"])
    assert [one.figures["rate"] for one in rounds] == [3, 1, 8, 1]


def test_the_committed_table_is_renewed_in_its_place() -> None:
    document = "# Results\n\n## First\n\nold\n"
    once = comparereport.committed(document, "## Again", ["new"])
    assert once.startswith(document) and once.endswith("\n\nnew\n")
    behind = once + "\n## Last\n\nkept\n"
    again = comparereport.committed(behind, "## Again", ["newer"])
    assert again == behind.replace("\nnew\n", "\nnewer\n")


def test_prose_of_the_committed_table_is_wrapped_and_its_rows_are_not() -> None:
    said, row = " ".join(["word"] * 60), "| " + "x" * 200 + " |"
    document = comparereport.committed("", "## Again", [said, "", row])
    assert max(len(line) for line in document.splitlines() if not line.startswith("|")) <= 120
    assert row in document.splitlines() and document.count("word") == 60


def test_work_of_others_is_told_from_our_own() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", burn], **pipes) as other:
        unknown, known = Watch(()), Watch([other.pid])
        assert other.stdout is not None
        other.stdout.readline()
        assert unknown.noise().others > known.noise().others
        other.communicate(b"\n")
