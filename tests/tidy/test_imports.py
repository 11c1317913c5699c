"""Who imports whom: the contracts of pyproject.toml, and what the client may load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from testkit.sources import ROOT

HERE_OR_STANDARD = """
import sys
import {module}
third = sorted({{
    name.partition(".")[0] for name, module in sys.modules.items()
    if "site-packages" in (getattr(module, "__file__", None) or "")
}} - {{"gantry", "_virtualenv", "__editable___gantrymq_0_1_0_finder", "_distutils_hack"}})
print(*third)
"""


def test_the_import_contracts_hold() -> None:
    tool = Path(sys.executable).with_name("lint-imports")
    if not tool.exists():
        pytest.skip("missing lint-imports; make dev")
    done = subprocess.run([str(tool), "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.parametrize(
    "module",
    [
        "gantry.client.producer",
        "gantry.client.consumer",
        "gantry.client.admin",
        "gantry.client.blocking",
        "gantry.transport.client",
        "gantry.wire.bodies",
        "gantry.cli.main",
    ],
)
def test_the_client_loads_nothing_but_the_standard_library(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HERE_OR_STANDARD.format(module=module)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
