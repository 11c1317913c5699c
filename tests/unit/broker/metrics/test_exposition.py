"""The table of metrics: written down, and read without counting anything itself."""

from __future__ import annotations

import re

from gantry.broker.metrics import exposition
from testkit import readme
from testkit.sources import ROOT


def test_the_page_has_the_table_that_the_code_has() -> None:
    text = (ROOT / readme.METRICS_PAGE).read_text(encoding="utf-8")
    assert readme.with_metrics(text) == text, "make readme"


def test_names_are_prometheus_names_with_their_unit_last() -> None:
    names = [family.name for family in exposition.FAMILIES]
    assert len(set(names)) == len(names)
    for family in exposition.FAMILIES:
        # The exporter's names have numbers, and gauges that end like counters.
        assert re.fullmatch("gantry_[a-z_]+|rocketmq_[a-z_]+|rocketmq_brokeruntime_[a-z0-9_]+", family.name)
        is_old = family.name.startswith("rocketmq_brokeruntime_")
        assert is_old or not family.name.endswith("_total"), "the library adds it to counters"
        assert family.help.endswith((".", ")."))
