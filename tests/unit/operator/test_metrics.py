"""What the operator counts: names that dashboards and alerts know, and a number of series that does not grow."""

from __future__ import annotations

import asyncio
import re

import pytest

from gantry_operator.api.brokercluster import Key
from gantry_operator.api.declared import Declared, Kind
from gantry_operator.kube import KubeError, resource_of
from gantry_operator.metrics import CLASSES, Gauges, Metrics, class_of
from gantry_operator.monitoring import operatorboard
from gantry_operator.passes import Passes
from testkit.simclock import SimClock
from testkit.sources import ROOT

KEY = Key("messaging", "orders")
TOPIC = Declared(Kind.TOPIC, "messaging", "tea")
_NAME = re.compile(r"\b(?:gantrymq_operator|process)_[a-z_]+\b")
_SUFFIXES = ("_bucket", "_count", "_sum")


def metrics() -> Metrics:
    made = Metrics()
    made.watch(lambda: Gauges(True, 2, 1.5, {"pods": 3.0}, 4))
    return made


def value(made: Metrics, series: str) -> float:
    return float(next(line for line in made.text().decode().splitlines() if line.startswith(f"{series} ")).split()[-1])


def names() -> set[str]:
    return set(re.findall(r"^# TYPE (\S+)", metrics().text().decode(), re.MULTILINE))


def asked_for() -> list[str]:
    panels = [query.text for panel in operatorboard.BOARD.panels for query in panel.queries]
    return [*panels, *(alert.text for alert in operatorboard.ALERTS)]


@pytest.mark.parametrize("text", asked_for())
def test_dashboard_and_alerts_ask_for_what_is_exposed(text: str) -> None:
    for name in _NAME.findall(text):
        known = {name, *(name.removesuffix(suffix) for suffix in _SUFFIXES)}
        assert known & names(), name


def test_the_document_lists_every_metric() -> None:
    text = (ROOT / "operator/docs/running.md").read_text(encoding="utf-8")
    for name in names():
        assert f"`{name}`" in text or name.startswith("process_") or name.endswith("_created"), name


def test_alerts_say_what_to_do() -> None:
    assert all(each.severity in ("critical", "warning") and len(each.do) > 40 for each in operatorboard.ALERTS)


def test_values_of_others_are_asked_for_at_the_scrape() -> None:
    made = metrics()
    assert value(made, "gantrymq_operator_leader") == 1 and value(made, "gantrymq_operator_queue_keys") == 2
    assert value(made, 'gantrymq_operator_watch_age_seconds{resource="pods"}') == 3


async def test_a_pass_is_counted_and_a_failure_by_its_class() -> None:
    made, clock = metrics(), SimClock()

    async def work(key: Key) -> float | None:
        clock.advance(2000)
        if key.name == "bad":
            raise KubeError("PATCH pods", 403, "pods is forbidden")
        return 60.0

    passes = Passes(work, made, clock)
    assert await passes.once(KEY) == 60.0
    with pytest.raises(KubeError) as error:
        await passes.once(Key("messaging", "bad"))
    passes.failed(KEY, error.value)
    assert value(made, 'gantrymq_operator_passes_total{kind="brokercluster",outcome="done"}') == 1
    assert value(made, 'gantrymq_operator_passes_total{kind="brokercluster",outcome="failed"}') == 1
    assert value(made, 'gantrymq_operator_pass_seconds_sum{kind="brokercluster"}') == 4
    assert value(made, 'gantrymq_operator_errors_total{class="forbidden"}') == 1


def test_what_no_pass_should_raise_is_a_fault_of_ours_and_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = metrics()
    passes = Passes(lambda key: asyncio.sleep(0), made, SimClock())  # type: ignore[arg-type,return-value]
    for key, error in ((KEY, KeyError("x")), (KEY, ValueError("y")), (TOPIC, ValueError("of another definition"))):
        try:
            raise error
        except (KeyError, ValueError) as raised:
            passes.failed(key, raised)
    assert value(made, 'gantrymq_operator_errors_total{class="bug"}') == 2
    assert value(made, 'gantrymq_operator_errors_total{class="invalid"}') == 1
    assert caplog.text.count("Traceback") == 2 and caplog.text.count("messaging/orders") == 2


async def test_a_pass_that_failed_is_told_and_a_status_that_cannot_be_written_hides_nothing() -> None:
    told: list[str] = []

    async def work(key: Key) -> float | None:
        raise KeyError("x")

    async def tell(key: Key, error: Exception) -> None:
        told.append(repr(error))
        raise KubeError("PATCH status", 503, "busy")

    with pytest.raises(KeyError):
        await Passes(work, metrics(), SimClock(), tell=tell).once(KEY)
    assert told == ["KeyError('x')"]


def test_a_refusal_is_logged_with_what_would_mend_it(caplog: pytest.LogCaptureFixture) -> None:
    Passes(lambda key: asyncio.sleep(0), metrics(), SimClock()).failed(KEY, KubeError("PATCH x", 403, "no"))  # type: ignore[arg-type,return-value]
    assert "messaging/orders" in caplog.text and "role" in caplog.text


@pytest.mark.parametrize(
    ("status", "kind"),
    [(None, "invalid"), (0, "transient"), (429, "transient"), (503, "transient"), (403, "forbidden"),
     (409, "conflict"), (422, "invalid"), (404, "other")],
)  # fmt: skip
def test_errors_have_classes(status: int | None, kind: str) -> None:
    assert class_of(status) == kind and kind in CLASSES


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/api/v1/namespaces/n/pods/p", "pods"),
        ("/api/v1/namespaces/n/pods", "pods"),
        ("/apis/gantrymq.io/v1alpha1/namespaces/n/brokerclusters/orders/status", "brokerclusters/status"),
    ],
)
def test_a_write_is_counted_by_its_kind_and_by_no_name(path: str, kind: str) -> None:
    assert resource_of(path) == kind
    made = metrics()
    made.wrote("patch", resource_of(path))
    before = len(made.text().splitlines())
    for number in range(100):
        made.wrote("patch", resource_of(path.replace("/n/", f"/n{number}/")))
    assert len(made.text().splitlines()) == before
