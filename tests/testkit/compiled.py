"""Both twins side by side, for the differential tests."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from os import environ
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

# The machine is shared, so no deadline; the first draw of text builds tables for a second.  `make fuzz` asks for more.
hostile = settings(
    deadline=None,
    max_examples=int(environ.get("GANTRY_EXAMPLES", "300")),
    suppress_health_check=[HealthCheck.too_slow],
)


def pure(name: str) -> ModuleType:
    """The pure leaf, whichever twin runs (`import gantry.leaves.frames as pure` would be the one that runs)."""
    return import_module(f"gantry.leaves.{name}")


def fast(name: str) -> ModuleType:
    """The compiled leaf, or a skip that says how to get it (on CI: a failure)."""
    try:
        return import_module(f"gantry.leaves._fast.{name}")
    except ImportError as error:
        pytest.skip(
            f"missing compiled leaves ({error}); a C compiler and `make dev` build them", allow_module_level=True
        )


def same_outcome(left: Callable[[], object], right: Callable[[], object]) -> None:
    """Both return equal values, or both raise the same error in the same words."""
    outcomes: list[tuple[object, object]] = []
    for call in (left, right):
        try:
            outcomes.append((None, call()))
        except Exception as error:  # noqa: BLE001  whatever it is, the other one has to raise it too
            outcomes.append((type(error), str(error)))
    assert outcomes[0] == outcomes[1]
