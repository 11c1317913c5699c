"""`python -m gantry_operator.monitoring CHART`: write the dashboards and the alerts into the chart's folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import yaml

from gantry_operator.monitoring import alerts, dashboards, guaranteeboard, operatorboard, proxyboard, queuesboard


def files() -> dict[str, str]:
    """Return the generated files' texts, by their path in the chart."""
    boards = [*dashboards.ALL, proxyboard.BOARD, queuesboard.BOARD, guaranteeboard.BOARD, operatorboard.BOARD]
    made = {f"dashboards/{each.uid}.json": json.dumps(each.to_document(), indent=1) + "\n" for each in boards}
    more = (proxyboard.GROUP, queuesboard.GROUP, guaranteeboard.GROUP, operatorboard.GROUP)
    made["alerts/gantrymq.yaml"] = "# Generated from gantry_operator.monitoring.alerts.\n" + yaml.safe_dump(
        alerts.to_document(*more), sort_keys=False, width=120
    )
    return made


def main(folder: str) -> None:
    """Write dashboards and alerts into this folder."""
    for name, text in files().items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
