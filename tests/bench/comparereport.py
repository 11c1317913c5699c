"""What the rounds of a comparison say: ratios of neighbours with their spread, as Markdown, plots and a table.

A ratio is ours divided by Apache's of the same round, and a row tells the median, the smallest and the largest of them.
For `rate` more than 1 is better for ours, for everything else less than 1.  A round is marked when the machine did
other work meanwhile (`quiet`) under either of the two; marked rounds count, and the table says how many there were.
"""

from __future__ import annotations

import json
import statistics
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from quiet import OTHERS_MAX, STEAL_MAX, Noise

RESULTS = Path(__file__).with_name("RESULTS.md")
_HEADING = "## How does it compare with Apache's broker?"
_METRICS = {
    "rate": "messages/s",
    "cpu_us_per_message": "CPU us/message",
    "p50_us": "p50 us",
    "p99_us": "p99 us",
    "p999_us": "p99.9 us",
    "seconds": "seconds",
    "mib": "anonymous MiB",
    "resident_mib": "resident MiB",
}
_COLUMNS = 120
OTHERS = {"ours": "ours", "apache": "Apache", "kafka": "Kafka 4", "nats": "NATS JetStream", "redis": "Redis Streams"}
"""Servers of the table for orientation, by side."""
_COMMITTED = ("rate", "cpu_us_per_message", "p50_us", "p99_us")


@dataclass(frozen=True)
class Run:
    """When, where and how contests were run; the load is that of 1, 5 and 15 minutes before the first of them."""

    when: str
    machine: str
    load: tuple[float, float, float]
    command: str


@dataclass(frozen=True)
class Round:
    """What one broker did at one point in one round."""

    contest: str
    row: str
    side: str
    number: int
    figures: dict[str, float]
    noise: Noise


@dataclass(frozen=True)
class Compared:
    """One metric of one row: medians of both sides, and the ratios of their rounds."""

    ours: float
    apache: float
    ratios: tuple[float, ...]

    @property
    def spread(self) -> str:
        """Median, smallest and largest ratio."""
        return f"{statistics.median(self.ratios):.2f} ({min(self.ratios):.2f} to {max(self.ratios):.2f})"


@dataclass(frozen=True)
class RowOfBoth:
    """A row: its metrics, and how many of its rounds were marked."""

    contest: str
    name: str
    metrics: dict[str, Compared]
    rounds: int
    marked: int


def rows_of(rounds: Iterable[Round]) -> list[RowOfBoth]:
    """The rows in the order of their first round; a round without its neighbour does not count."""
    by_row: dict[tuple[str, str], dict[int, dict[str, Round]]] = {}
    for one in (one for one in rounds if one.contest != "others"):
        by_row.setdefault((one.contest, one.row), {}).setdefault(one.number, {})[one.side] = one
    found = []
    for (contest, name), numbers in by_row.items():
        pairs = [(both["ours"], both["apache"]) for both in numbers.values() if len(both) == 2]
        if not pairs:
            continue
        metrics = {}
        for metric in _METRICS:
            values = [(a.figures.get(metric, -1.0), b.figures.get(metric, -1.0)) for a, b in pairs]
            values = [(a, b) for a, b in values if a > 0 and b > 0]
            if values:
                ours, apache = zip(*values, strict=True)
                ratios = tuple(a / b for a, b in values)
                metrics[metric] = Compared(statistics.median(ours), statistics.median(apache), ratios)
        marked = sum(a.noise.is_marked or b.noise.is_marked for a, b in pairs)
        found.append(RowOfBoth(contest, name, metrics, len(pairs), marked))
    return found


def keep(folder: Path, contest: str, run: Run, rounds: Sequence[Round]) -> None:
    """Put the rounds of a contest in the place of its older ones."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "rounds.json"
    contests = json.loads(path.read_text()) if path.exists() else {}
    contests[contest] = {"run": asdict(run), "rounds": [asdict(one) for one in rounds]}
    path.write_text(json.dumps(contests, indent=1) + "\n")


def kept(folder: Path, order: Sequence[str]) -> tuple[dict[str, Run], list[Round]]:
    """The newest run of each contest, and the rounds of all of them, in this order of contests."""
    contests = json.loads((folder / "rounds.json").read_text())
    names = [name for name in order if name in contests]
    runs = {name: Run(**{**contests[name]["run"], "load": tuple(contests[name]["run"]["load"])}) for name in names}
    found = [one for name in names for one in contests[name]["rounds"]]
    return runs, [Round(**{**one, "noise": Noise(**one["noise"])}) for one in found]


def write(folder: Path, order: Sequence[str], *, is_committed: bool) -> str:
    """Make report.md and the plots of all that is kept; the report as text."""
    import compareplots  # Matplotlib takes a second to load

    runs, rounds = kept(folder, order)
    rows = rows_of(rounds)
    plots = compareplots.draw(folder, rows)
    lines = ["# GantryMQ and Apache's broker 5.x, in turns", "", *_said(runs, rounds), ""]
    lines += [f"![{path.stem}]({path.name})" for path in plots]
    lines += [*_beside_pulls(rounds), *_others(rounds)]
    for metric, title in _METRICS.items():
        if any(metric in row.metrics for row in rows):
            lines += ["", f"## {title}", "", *_table_of(rows, metric)]
    lines += ["", "## Noise of every round", "", *_noise(rounds)]
    text = "\n".join(lines) + "\n"
    (folder / "report.md").write_text(text)
    if is_committed:
        RESULTS.write_text(
            committed(
                RESULTS.read_text(),
                _HEADING,
                [*_said(runs, rounds), "", *_short_table(rows), *_beside_pulls(rounds), *_others(rounds)],
            )
        )
    return text


def committed(document: str, heading: str, section: Sequence[str]) -> str:
    """The document with one section renewed, or appended."""
    before, found, rest = document.partition(heading)
    _, following, behind = rest.partition("\n## ")
    if not found:
        before = document.rstrip("\n") + "\n\n"
    section = [wrapped for line in section for wrapped in _wrapped(line)]
    return before + "\n".join([heading, "", *section, ""]) + (following + behind if following else "")


def _wrapped(line: str) -> list[str]:
    """A line of prose in the width of our documents; a row of a table stays whole."""
    if line.startswith("|") or not line:
        return [line]
    return textwrap.wrap(line, _COLUMNS, break_long_words=False, break_on_hyphens=False)


def _said(runs: dict[str, Run], rounds: Sequence[Round]) -> list[str]:
    lines = []
    by_run: dict[Run, list[str]] = {}
    for name, run in runs.items():
        by_run.setdefault(run, []).append(name)
    for run, names in by_run.items():
        noises = [one.noise for one in rounds if one.contest in names]
        marked = sum(noise.is_marked for noise in noises)
        loads, others = [noise.load for noise in noises], [noise.others for noise in noises]
        lines += [
            f"{', '.join(names)}: `{run.command}`, {run.when}, {run.machine}.",
            f"Load average before {run.load[0]:.1f}, during {min(loads):.1f} to {max(loads):.1f}, its own included;",
            f"other work {statistics.median(others):.0%} of all cores in the middle, {max(others):.0%} at most; steal "
            f"{max(noise.steal for noise in noises):.1%} at most.",
            f"{marked} of {len(noises)} runs are marked: other work above {OTHERS_MAX:.0%} or steal above "
            f"{STEAL_MAX:.0%}."
            + (" **Not quiet: not a result.**" if marked > len(noises) / 4 else ""),
            "",
        ]  # fmt: skip
    return [
        *lines,
        "Apache's broker: 5.5.0, G1, heap 2 GiB, settings of `tests/bench/apache.py`. Ratios are ours divided by",
        "Apache's of the same round: median (smallest to largest). CPU is of all threads of the broker, and of its",
        "slave where it has one.",
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ") if value >= 100 else f"{value:.3g}"


def _mark(row: RowOfBoth) -> str:
    return f"{row.marked} of {row.rounds}"


def _table_of(rows: Sequence[RowOfBoth], metric: str) -> list[str]:
    return ["| row | ours | Apache | ratio | marked |", "|-|-|-|-|-|"] + [
        f"| {row.name} | {_number(one.ours)} | {_number(one.apache)} | {one.spread} | {_mark(row)} |"
        for row in rows
        if (one := row.metrics.get(metric)) is not None
    ]


def _short_table(rows: Sequence[RowOfBoth]) -> list[str]:
    """Ours : Apache's, and the ratio with its spread; what has no rate has its own small table."""
    lines = ["| ours : Apache's | messages/s | CPU us/message | p50 us | p99 us | marked |", "|-|-|-|-|-|-|"]
    for row in (row for row in rows if "rate" in row.metrics):
        cells = [
            f"{_number(one.ours)} : {_number(one.apache)}, {one.spread}" if (one := row.metrics.get(metric)) else "-"
            for metric in _COMMITTED
        ]
        lines.append(f"| {' | '.join([row.name, *cells, _mark(row)])} |")
    others = [row for row in rows if "rate" not in row.metrics]
    if others:
        lines += ["", "| ours : Apache's | found | ratio | marked |", "|-|-|-|-|"]
    for row in others:
        for metric, one in row.metrics.items():
            found = f"{_number(one.ours)} : {_number(one.apache)} {_METRICS[metric]}"
            lines.append(f"| {row.name} | {found} | {one.spread} | {_mark(row)} |")
    return lines


def _beside_pulls(rounds: Sequence[Round]) -> list[str]:
    """What a popped message costs, as a multiple of the CPU of a pulled one of the same broker and round."""
    cpu: dict[tuple[str, int], list[float]] = {}
    for one in rounds:
        if one.contest == "pops":
            cpu.setdefault((one.side, one.number), []).append(one.figures["cpu_us_per_message"])
    factors = {
        side: [pop / pull for (whose, _), (pull, pop) in cpu.items() if whose == side] for side in ("ours", "apache")
    }
    if not cpu:
        return []
    cells = [f"{statistics.median(some):.2f} ({min(some):.2f} to {max(some):.2f})" for some in factors.values()]
    return ["", "| CPU of a pop as a multiple of a pull | ours | Apache |", "|-|-|-|", f"| | {' | '.join(cells)} |"]


def _others(rounds: Sequence[Round]) -> list[str]:
    """Other brokers beside both: medians, and the spread of the CPU."""
    found: dict[str, dict[str, list[Round]]] = {}
    for one in rounds:
        if one.contest == "others":
            found.setdefault(one.row, {}).setdefault(one.side, []).append(one)
    if not found:
        return []
    sides = [side for side in OTHERS if any(side in row for row in found.values())]
    head = ["| orientation: messages/s, CPU us/message | " + " | ".join(OTHERS[side] for side in sides) + " |"]
    lines = ["", *head, "|-" * (len(sides) + 1) + "|"]
    for row, by_side in found.items():
        cells = []
        for side in sides:
            some = [one.figures for one in by_side.get(side, [])]
            cpu = sorted(one["cpu_us_per_message"] for one in some)
            rate = _number(statistics.median(one["rate"] for one in some)) if some else "-"
            cells.append(f"{rate}, {_number(statistics.median(cpu))} ({cpu[0]:.3g} to {cpu[-1]:.3g})" if cpu else "-")
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return lines


def _noise(rounds: Sequence[Round]) -> list[str]:
    lines = ["| row | round | broker | load before | other work | steal | |", "|-|-|-|-|-|-|-|"]
    for one in rounds:
        noise, mark = one.noise, "marked" if one.noise.is_marked else ""
        lines.append(
            f"| {one.row} | {one.number + 1} | {one.side} | {noise.load:.1f} | {noise.others:.0%} | {noise.steal:.1%} "
            f"| {mark} |"
        )
    return lines
