"""RocketMQ 5's client for Python and our stubs of the same protocol live in one process.

Both have messages of the same names.  In one descriptor pool the second import would fail.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from interop import grpcclients, prepare, proxies, servers
from testkit.patience import HANG_S
from testkit.sources import ROOT


@pytest.mark.parametrize("first", ["ours", "theirs"])
@pytest.mark.only_on_gantry
def test_each_receives_what_the_other_sends(
    every_sdk: None, server: servers.Server, proxy: proxies.Proxy, name: str, first: str, tmp_path: Path
) -> None:
    grpcclients.create_topic(server, name)
    grpcclients.create_group(server, f"G{name}")
    grpcclients.begin_at_the_start(server, f"G{name}", name)
    script = prepare.HERE / "sdks" / "python" / "both.py"
    done = subprocess.run(
        [str(prepare.sdk_python()), str(script), first, proxy.endpoints, name, f"G{name}"],
        # The SDK logs why a call failed below its HOME only.
        env={**os.environ, "HOME": str(tmp_path), "PYTHONPATH": f"{ROOT / 'broker/src'}:{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=2 * HANG_S,
        check=False,
    )
    logs = "".join(log.read_text()[-4000:] for log in tmp_path.rglob("*.log"))
    assert done.returncode == 0, f"{done.stderr[-4000:]}\n{logs}"
    assert json.loads(done.stdout.splitlines()[-1]) == ["from theirs", "from ours"]
