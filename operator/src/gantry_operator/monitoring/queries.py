"""What the dashboards are put together from: selectors, rates, quantiles, panels.

All of them choose by the variable `$instance`, so one dashboard shows a process, a group or a whole cluster.
"""

from __future__ import annotations

from gantry_operator.monitoring.panels import Panel, PanelType, Query, Variable

OF_BROKERS = (
    Variable("cluster", "label_values(gantry_broker_info, cluster)", "Cluster"),
    Variable("instance", 'label_values(gantry_broker_info{cluster=~"$cluster"}, instance)', "Broker"),
)
_HERE = 'instance=~"$instance"'


def of(metric: str, *labels: str) -> str:
    """Return a selector of a metric at the chosen instances, with more matchers."""
    chosen = ",".join((_HERE, *labels))
    return f"{metric}{{{chosen}}}"


def rate(metric: str, *labels: str, by: str = "instance") -> str:
    """Return its rate a second, summed by these labels."""
    return f"sum by ({by}) (rate({of(metric, *labels)}[$__rate_interval]))"


def quantile(share: float, metric: str) -> str:
    """Return a quantile of a histogram at each instance."""
    return f"histogram_quantile({share}, sum by (le, instance) (rate({of(f'{metric}_bucket')}[$__rate_interval])))"


def stat(title: str, text: str, help_: str, unit: str = "short", bad_from: float | None = None) -> Panel:
    """Return a panel with one large number."""
    return Panel(title, help_, (Query(text, title.lower()),), unit, PanelType.STAT, bad_from)


def lines(title: str, help_: str, *queries: Query, unit: str = "short") -> Panel:
    """Return a panel with a line for each series."""
    return Panel(title, help_, queries, unit)
