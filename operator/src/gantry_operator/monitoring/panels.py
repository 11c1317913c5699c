"""A dashboard as a value, and the JSON that Grafana reads.

A dashboard is rows of panels; a panel has a title, a unit and queries.  Where everything lands on the screen follows
from the order: a row takes the full width, its panels share it.  Every query filters by the variable `$instance`, so
that one dashboard shows a broker, a group or a whole cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

WIDTH = 24  # of a dashboard, in Grafana's units
_HEIGHT = 8
_STAT_HEIGHT = 4
_SCHEMA = 39  # of Grafana 10 and later
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


class PanelType(Enum):
    """How a panel shows its values."""

    LINES = "timeseries"
    STAT = "stat"  # the last value, large
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL, and the legend of its series ({{label}} is replaced)."""

    text: str
    legend: str = "{{instance}}"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.  `help`: what its values mean and what to do; `bad_from`: red from this value on."""

    title: str
    help: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: PanelType = PanelType.LINES
    bad_from: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Panels side by side under a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the top of the dashboard: the values of a label."""

    name: str
    query: str
    label: str
    has_all: bool = True


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard.  `uid` must never change, because links contain it."""

    uid: str
    title: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = field(default=())

    @property
    def panels(self) -> Iterator[Panel]:
        """Yield the panels of all rows."""
        for row in self.rows:
            yield from row.panels

    def to_document(self) -> dict[str, object]:
        """Return the dashboard as the JSON document that Grafana imports."""
        return {
            "uid": self.uid,
            "title": self.title,
            "tags": ["gantrymq"],
            "schemaVersion": _SCHEMA,
            "editable": True,
            "refresh": "10s",
            "time": {"from": "now-1h", "to": "now"},
            "timezone": "browser",
            "templating": {"list": [_source_variable(), *(_variable(each) for each in self.variables)]},
            "panels": list(_laid_out(self.rows)),
        }


def _laid_out(rows: tuple[Row, ...]) -> Iterator[dict[str, object]]:
    top = number = 0
    for row in rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1},
            "panels": [],
        }
        top += 1
        height = _STAT_HEIGHT if all(panel.kind is PanelType.STAT for panel in row.panels) else _HEIGHT
        width = WIDTH // len(row.panels)
        for place, panel in enumerate(row.panels):
            number += 1
            yield _panel(panel, number, {"x": place * width, "y": top, "w": width, "h": height})
        top += height


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, object]:
    steps: list[dict[str, object]] = [{"color": "green", "value": None}]
    if panel.bad_from is not None:
        steps.append({"color": "red", "value": panel.bad_from})
    return {
        "id": number,
        "type": panel.kind.value,
        "title": panel.title,
        "description": panel.help,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}},
            "overrides": [],
        },
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
        if panel.kind is PanelType.LINES
        else {},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "expr": query.text,
                "legendFormat": query.legend,
                "datasource": _SOURCE,
                "instant": panel.kind is PanelType.TABLE,
                "format": "table" if panel.kind is PanelType.TABLE else "time_series",
            }
            for place, query in enumerate(panel.queries)
        ],
    }


def _source_variable() -> dict[str, object]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _variable(variable: Variable) -> dict[str, object]:
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": variable.query, "refId": variable.name},
        "refresh": 2,
        "includeAll": variable.has_all,
        "multi": variable.has_all,
        "allValue": ".*" if variable.has_all else None,
        "current": {"text": "All", "value": "$__all"} if variable.has_all else {},
    }
