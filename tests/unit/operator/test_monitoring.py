"""Dashboards and alerts name what brokers expose, and the chart holds what is generated."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest
import yaml

from gantry.broker.metrics.exposition import FAMILIES
from gantry.guarantee.metrics import FAMILIES as OF_THE_GUARANTEE
from gantry.proxy.metrics import KINDS, ProxyMetrics
from gantry.queues.metrics import KINDS as QUEUE_KINDS
from gantry.queues.metrics import QueueMetrics
from gantry.replication.timers import TIMERS, Timers, derive_serving_waits
from gantry_operator.monitoring import alerts, dashboards, guaranteeboard, proxyboard, queuesboard
from gantry_operator.monitoring.__main__ import files
from gantry_operator.monitoring.panels import WIDTH, Dashboard
from testkit.sources import ROOT

CHART = ROOT / "charts/gantrymq"
_METRIC = re.compile(r"\b(?:gantry|rocketmq|process)_[a-z_]+\b")
_SUFFIXES = ("_bucket", "_count", "_sum", "_total")
# What a label is called that a metric of ours could be taken for.
_LABELS = {"gantry_version"}


def exposed() -> set[str]:
    return {family.name for family in FAMILIES} | {"process_resident_memory_bytes"}


def of_proxies() -> set[str]:
    return typed(ProxyMetrics(Counter({("SendMessage", "OK"): 1}), lambda: dict.fromkeys(KINDS, 0), lambda: "c").text())


def of_queues() -> set[str]:
    answered = Counter({("POST queues messages", 201, ""): 1})
    return typed(QueueMetrics(answered, lambda: dict.fromkeys(QUEUE_KINDS, 0)).text())


def typed(text: bytes) -> set[str]:
    return set(re.findall(r"^# TYPE (\S+)", text.decode(), re.MULTILINE))


def named(text: str) -> set[str]:
    found = set()
    for name in _METRIC.findall(text):
        for suffix in _SUFFIXES:
            name = name.removesuffix(suffix) if name.removesuffix(suffix) in exposed() else name
        found.add(name)
    return found - _LABELS


@pytest.mark.parametrize("dashboard", dashboards.ALL, ids=lambda each: each.uid)
def test_every_panel_asks_for_metrics_that_a_broker_exposes(dashboard: Dashboard) -> None:
    for panel in dashboard.panels:
        for query in panel.queries:
            assert named(query.text) and named(query.text) <= exposed(), (panel.title, query.text)


@pytest.mark.parametrize(
    ("board", "found", "exposes"),
    [(proxyboard.BOARD, proxyboard.ALERTS, of_proxies()), (queuesboard.BOARD, queuesboard.ALERTS, of_queues())],
    ids=["proxies", "queues"],
)
def test_panels_and_alerts_of_a_door_ask_for_what_it_exposes(
    board: Dashboard, found: tuple[alerts.Alert, ...], exposes: set[str]
) -> None:
    asked = [query.text for panel in board.panels for query in panel.queries]
    for text in [*asked, *(alert.text for alert in found)]:
        assert set(_METRIC.findall(text)) and set(_METRIC.findall(text)) <= exposes, text
    assert all(each.severity in ("critical", "warning") and len(each.do) > 40 for each in found)


def test_panels_and_alerts_of_the_guarantee_ask_for_what_a_resend_process_exposes() -> None:
    asked = [query.text for panel in guaranteeboard.BOARD.panels for query in panel.queries]
    asked += [each.text for each in guaranteeboard.ALERTS]
    assert {name for text in asked for name in _METRIC.findall(text)} == set(OF_THE_GUARANTEE)
    assert all(each.severity in ("critical", "warning") and len(each.do) > 40 for each in guaranteeboard.ALERTS)


BOARDS = (*dashboards.ALL, proxyboard.BOARD, queuesboard.BOARD, guaranteeboard.BOARD)


@pytest.mark.parametrize("dashboard", BOARDS, ids=lambda each: each.uid)
def test_panels_have_a_help_and_fit_the_screen(dashboard: Dashboard) -> None:
    document = json.loads(json.dumps(dashboard.to_document()))
    panels = document["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= WIDTH
        across, down = (range(place[start], place[start] + place[size]) for start, size in (("x", "w"), ("y", "h")))
        cells = {(x, y) for x in across for y in down}
        assert not cells & taken, f"{panel['title']} covers another panel"
        taken |= cells
        assert panel["type"] == "row" or len(panel["description"]) > 5


def test_every_alert_asks_for_metrics_that_exist_and_says_what_to_do() -> None:
    names = [alert.name for _, group in alerts.GROUPS for alert in group]
    assert len(set(names)) == len(names)
    for _, group in alerts.GROUPS:
        for alert in group:
            assert named(alert.text) <= exposed() and named(alert.text), alert.name
            assert alert.severity in ("critical", "warning") and len(alert.do) > 40
            assert named(alert.do) <= exposed(), alert.name


@pytest.mark.parametrize("timers", TIMERS.values(), ids=list(TIMERS))
def test_a_master_that_renews_in_time_is_not_reported(timers: Timers) -> None:
    (text,) = [alert.text for _, group in alerts.GROUPS for alert in group if alert.name == "GantryPermitRunsOut"]
    waits = derive_serving_waits(timers.renew_every_s)
    lowest_s = waits.fresh_s - timers.renew_every_s  # right before its next renewal
    assert text.startswith("gantry_permit_seconds == 0 ") and lowest_s > 0, "or the threshold is below lowest_s"


@pytest.mark.parametrize("name", sorted(files()))
def test_the_chart_holds_what_is_generated(name: str) -> None:
    assert (CHART / name).read_text(encoding="utf-8") == files()[name], f"make crds writes {name} again"


def test_the_rule_file_is_what_prometheus_reads() -> None:
    found = yaml.safe_load(files()["alerts/gantrymq.yaml"])
    others = [name for name, _ in alerts.GROUPS]
    more = [f"gantrymq-{part}" for part in ("proxies", "queues", "guarantee", "operator")]
    assert [group["name"] for group in found["groups"]] == [*others, *more]
