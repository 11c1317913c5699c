"""Both ways to read and write sockets: by the loop's own transports, and all of them together in compiled code."""

from __future__ import annotations

import pytest

from gantry.transport import server
from testkit.compiled import fast


@pytest.fixture(params=["by the loop", "together"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The way that servers of this test take."""
    name: str = request.param
    if name == "together":
        fast("sockets")
    monkeypatch.setattr(server, "can_gather", lambda loop: name == "together")
    return name
