"""The operator's panels and alerts, asked of a real Prometheus that scrapes two of them at a real API server."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from e2e.test_leader import CLUSTERS, is_told, kinds, made, pause  # noqa: F401
from e2e.test_monitoring import answered, fires
from gantry_operator.monitoring import operatorboard
from testkit.kube.controlplane import ControlPlane
from testkit.kube.operators import Replica
from testkit.pairplay import until
from testkit.prometheus import Prometheus, program, scraping
from testkit.sources import ROOT

RULES = ROOT / "charts/gantrymq/alerts/gantrymq.yaml"


class Watched(NamedTuple):
    """Two operators and the Prometheus that scrapes them."""

    prometheus: Prometheus
    replicas: tuple[Replica, Replica]

    def until(self, holds: Callable[[], object], what: str) -> None:
        """Wait until it holds; an operator that has ended meanwhile is started again."""

        def holds_now() -> object:
            for replica in self.replicas:
                replica.revive()
            return holds()

        until(holds_now, what)


@pytest.fixture(scope="module")
def watched(kinds: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:  # noqa: F811
    folder = tmp_path_factory.mktemp("operators")
    with Replica(kinds, folder, "a") as first, Replica(kinds, folder, "b") as second:
        targets = [f"127.0.0.1:{each.port}" for each in (first, second)]
        with scraping(folder, targets) as prometheus:
            both = Watched(prometheus, (first, second))
            first.start()
            both.until(first.leads, "the first leads")
            second.start()
            both.until(second.is_ready, "the second is ready")
            for _ in range(4):
                name = made(kinds)
                both.until(lambda: is_told(kinds, name), "one works")  # noqa: B023
                pause(3)
                kinds.admin.merge(f"{CLUSTERS}/{name}", {"spec": {"nameserver": {"replicas": 3}}})
            pause(3)
            yield both


@pytest.mark.parametrize(
    ("title", "text"), [(panel.title, query.text) for panel in operatorboard.BOARD.panels for query in panel.queries]
)
def test_a_panel_shows_something(watched: Watched, title: str, text: str) -> None:
    watched.until(lambda: watched.prometheus.query(answered(text)), f"{title}: {text} has a series")


def test_one_of_two_works(watched: Watched) -> None:
    def each() -> list[str]:
        found = watched.prometheus.query("gantrymq_operator_leader")
        return sorted(str(series["value"][1]) for series in found)  # type: ignore[index]

    watched.until(lambda: each() == ["0", "1"], "both are scraped, and one works")  # a busy machine scrapes late
    assert not watched.prometheus.query("max_over_time(sum(gantrymq_operator_leader)[10m:1s]) > 1")


@pytest.mark.parametrize("alert", operatorboard.ALERTS, ids=lambda each: each.name)
def test_an_alert_can_be_asked_and_is_silent_while_all_is_well(watched: Watched, alert: operatorboard.Alert) -> None:
    watched.until(lambda: not watched.prometheus.query(alert.text), f"{alert.name} is silent")


def test_the_rules_fire_when_they_should_and_not_before(tmp_path: Path) -> None:
    here = 'instance="o"'
    stories: dict[str, tuple[dict[str, str], str, str]] = {
        "GantryOperatorNobodyWorks": ({f"gantrymq_operator_leader{{{here}}}": "1x10 0x60"}, "9m", "15m"),
        "GantryOperatorGroupsUnwatched": (
            {
                f"gantrymq_operator_groups_unwatched{{{here}}}": "0x10 2x60",
                f"gantrymq_operator_leader{{{here}}}": "1x70",
            },
            "11m",
            "14m",
        ),
        "GantryOperatorBehind": (
            {
                f"gantrymq_operator_queue_age_seconds{{{here}}}": "200+60x60",
                f"gantrymq_operator_leader{{{here}}}": "1x60",
            },
            "3m",
            "10m",
        ),
        "GantryOperatorHearsNothing": (
            {f'gantrymq_operator_watch_age_seconds{{{here},resource="pods"}}': "0+60x60"}, "2m", "5m",
        ),
        "GantryOperatorPassesFail": (  # not for two passes that failed and were made again
            {f'gantrymq_operator_errors_total{{{here},class="timeout"}}': "0 1x4 2x24 3+1x60"}, "14m", "50m",
        ),
        "GantryOperatorManyFailovers": (
            {f'gantrymq_operator_failovers_total{{{here},step="promote"}}': "0x10 0+1x60"}, "10m", "20m",
        ),
    }  # fmt: skip
    assert stories.keys() == {each.name for each in operatorboard.ALERTS}
    plays = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "30s",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": series, "values": values} for series, values in inputs.items()],
                "promql_expr_test": [fires(name, silent, 0), fires(name, firing, 1)],
            }
            for name, (inputs, silent, firing) in stories.items()
        ],
    }
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(plays))
    command = [str(program("promtool")), "test", "rules", str(tmp_path / "tests.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
