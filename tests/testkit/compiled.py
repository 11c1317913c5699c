"""Both twins side by side, for the differential tests."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from importlib import import_module
from os import environ
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

# The machine is shared, so no deadline; the first draw of text builds tables for a second.
# `make test-full` and `make fuzz` ask for more, by a name that brokers do not take for a key of theirs (GANTRY_...).
hostile = settings(
    deadline=None,
    max_examples=int(environ.get("HOSTILE_EXAMPLES", "60")),
    suppress_health_check=[HealthCheck.too_slow],
)

# Copies that `make fuzz` looks at beside what Hypothesis drew, which costs a hundred times as much.
_COPIES = int(environ.get("GANTRY_COPIES", "0"))
_CHANGES_MAX = 3
_TELLING = (0, 1, 2, 34, 44, 58, 92, 123, 125, 127, 128, 255)  # what ends, escapes or turns a sign in our formats


def near(data: bytes | bytearray) -> Iterator[bytes]:
    """These bytes, and if asked for some like them, a few changed, the end cut off: the same for the same bytes."""
    yield bytes(data)
    chance = random.Random(bytes(data))
    for _ in range(_COPIES if data else 0):
        copy = bytearray(data)
        for _ in range(chance.randint(1, _CHANGES_MAX)):
            at = chance.randrange(len(copy))
            copy[at] = chance.choice((*_TELLING, copy[at] ^ 1 << chance.randrange(8)))
        yield bytes(copy[: chance.choice((len(copy), len(copy), chance.randrange(len(copy))))])


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
