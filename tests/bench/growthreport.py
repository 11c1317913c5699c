"""What grows with what, as a report with plots below build/growth and a table for RESULTS.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comparereport import RESULTS, committed

_HEADING = "## What does a broker cost when there is much of something?"
_COLUMNS = {
    "rate": ("messages/s", "{:.0f}"),
    "cpu_us_per_message": ("CPU us/message", "{:.2f}"),
    "p50_us": ("p50 us", "{:.0f}"),
    "p99_us": ("p99 us", "{:.0f}"),
    "mib": ("anonymous MiB", "{:.0f}"),
    "start_s": ("start after kill -9, s", "{:.2f}"),
    "kept": ("kept of half load", "{:.0%}"),
    "read_mib": ("read by the consumer, MiB", "{:.0f}"),
}
_PLOTTED = ("rate", "cpu_us_per_message", "mib", "start_s")
_READERS = ("producers at half load alone", "beside 512 slow readers", "beside a consumer far behind")
_DPI = 120


@dataclass(frozen=True)
class Measured:
    """The medians of one size; how many of its rounds were marked, and the highest load average before one."""

    name: str
    size: int
    figures: dict[str, float]
    rounds: int
    marked: int
    load: float


def write(folder: Path, kept: Mapping[str, Any], order: Sequence[str], *, is_committed: bool) -> str:
    """Make report.md and growth.png of all that is kept; the report as text."""
    names = [name for name in order if name in kept]
    rows = {name: [Measured(**row) for row in kept[name]["rows"]] for name in names}
    _draw(folder, [name for name in names if name != "readers"], rows)
    lines = []
    for name in names:
        lines += [f"{name}: {kept[name]['said']}.", "", *_table(name, rows[name]), ""]
    text = "\n".join(["# What grows with what", "", "![growth](growth.png)", "", *lines])
    (folder / "report.md").write_text(text)
    if is_committed:
        RESULTS.write_text(committed(RESULTS.read_text(), _HEADING, lines[:-1]))
    return text


def _table(name: str, rows: Sequence[Measured]) -> list[str]:
    keys = [key for key in _COLUMNS if any(key in row.figures for row in rows)]
    titles = [name, *[_COLUMNS[key][0] for key in keys], "load before", "marked"]
    lines = [f"| {' | '.join(titles)} |", "|" + "-|" * len(titles)]
    for row in rows:
        size = _READERS[row.size] if name == "readers" else f"{row.size} GiB" if name == "log" else str(row.size)
        cells = [_COLUMNS[key][1].format(row.figures[key]) if key in row.figures else "-" for key in keys]
        lines.append(f"| {' | '.join([size, *cells, f'{row.load:.1f}', f'{row.marked} of {row.rounds}'])} |")
    return lines


def _draw(folder: Path, names: Sequence[str], rows: Mapping[str, Sequence[Measured]]) -> None:
    """A panel for each metric (down) and each thing that grows (across)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    size = (4 * max(len(names), 1), 3 * len(_PLOTTED))
    figure, panels = pyplot.subplots(len(_PLOTTED), max(len(names), 1), figsize=size, squeeze=False)
    for across, name in enumerate(names):
        for down, metric in enumerate(_PLOTTED):
            points = [(row.size, row.figures[metric]) for row in rows[name] if metric in row.figures]
            panel = panels[down][across]
            if not points:
                panel.set_axis_off()
                continue
            panel.plot(*zip(*points, strict=True), "o-")
            panel.set_xscale("symlog", linthresh=1)
            panel.set_ylim(0, 1.1 * max(value for _, value in points))
            panel.set_xlabel(name)
            panel.set_ylabel(_COLUMNS[metric][0])
            panel.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(folder / "growth.png", dpi=_DPI)
    pyplot.close(figure)
