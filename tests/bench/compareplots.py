"""Plots of a comparison: ratios with their spread for each metric, and the latency of a live consumer by its load."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

if TYPE_CHECKING:
    from comparereport import RowOfBoth

_METRICS = {"rate": "messages/s", "cpu_us_per_message": "CPU/message", "p50_us": "p50", "p99_us": "p99"}
_COLOURS = {"ours": "tab:blue", "apache": "tab:orange"}
_DPI = 120
_ALIKE = 1.03  # the rate of a load with a given rate, for one


def draw(folder: Path, rows: Sequence[RowOfBoth]) -> list[Path]:
    """Write what can be drawn of these rows; the files."""
    drawn = [_ratios(folder, rows), _live(folder, [row for row in rows if row.contest == "live"])]
    return [path for path in drawn if path is not None]


def _ratios(folder: Path, rows: Sequence[RowOfBoth]) -> Path | None:
    """One panel a metric, one line a row: the median ratio as a point, smallest to largest as a bar; logarithmic."""
    shown = [row for row in rows if "rate" in row.metrics]
    if not shown:
        return None
    figure, panels = pyplot.subplots(1, len(_METRICS), sharey=True, figsize=(16, 1.5 + 0.3 * len(shown)), squeeze=False)
    for panel, (metric, title) in zip(panels[0], _METRICS.items(), strict=True):
        for at, row in enumerate(shown):
            if (one := row.metrics.get(metric)) is not None:
                middle = statistics.median(one.ratios)
                is_better = middle > 1 if metric == "rate" else middle < 1
                is_alike = 1 / _ALIKE < middle < _ALIKE
                spread = [[middle - min(one.ratios)], [max(one.ratios) - middle]]
                colour = "tab:gray" if is_alike else "tab:green" if is_better else "tab:red"
                panel.errorbar(middle, at, xerr=spread, fmt="o", color=colour, capsize=3)
        panel.axvline(1.0, color="grey", linewidth=1)
        panel.set_xscale("log", base=4)
        panel.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
        panel.set_title(f"{title}: ours / Apache's")
        panel.grid(axis="x", alpha=0.3)
    names = [row.name + (f" ({row.marked} of {row.rounds} marked)" if row.marked else "") for row in shown]
    panels[0][0].set_yticks(range(len(shown)), names)
    panels[0][0].invert_yaxis()
    return _saved(figure, folder / "ratios.png")


def _live(folder: Path, rows: Sequence[RowOfBoth]) -> Path | None:
    """p50, p99 and p99.9 from due to arrived, by the rate that arrived."""
    if not rows:
        return None
    figure, panel = pyplot.subplots(figsize=(8, 5))
    for metric, style in (("p50_us", ":"), ("p99_us", "-"), ("p999_us", "--")):
        for side, colour in _COLOURS.items():
            points = sorted(
                (getattr(row.metrics["rate"], side), getattr(row.metrics[metric], side) / 1000) for row in rows
            )
            rates, latencies = zip(*points, strict=True)
            panel.plot(rates, latencies, style, marker="o", color=colour, label=f"{side} {metric.removesuffix('_us')}")
    panel.set_yscale("log")
    panel.set_xlabel("messages/s")
    panel.set_ylabel("ms from due to arrived")
    panel.set_title("Live consumer")
    panel.grid(alpha=0.3)
    panel.legend()
    return _saved(figure, folder / "live.png")


def _saved(figure: pyplot.Figure, path: Path) -> Path:
    figure.tight_layout()
    figure.savefig(path, dpi=_DPI)
    pyplot.close(figure)
    return path
