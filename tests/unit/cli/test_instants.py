from __future__ import annotations

import pytest

from gantry.cli.instants import milliseconds, shown
from gantry.errors import ConfigError
from testkit.simclock import SimClock


def test_a_moment_is_written_in_three_ways() -> None:
    clock = SimClock()
    now_ms = clock.now_ms()
    assert milliseconds("@1795255200000", "--time") == 1_795_255_200_000
    assert milliseconds("2026-11-21T10:00:00Z", "--time") == 1_795_255_200_000
    assert milliseconds("2026-11-21T11:00:00+01:00", "--time") == 1_795_255_200_000
    assert milliseconds("30m", "--time", clock) == now_ms - 1_800_000
    assert milliseconds("3d", "--time", clock) == now_ms - 3 * 86_400_000


@pytest.mark.parametrize("text", ["", "soon", "@", "@-1", "-5m", "5", "m", "2026-13-01", "\u0663d"])
def test_anything_else_is_an_error_that_names_the_flag(text: str) -> None:
    with pytest.raises(ConfigError, match="--to-time"):
        milliseconds(text, "--to-time")


def test_what_is_shown_can_be_read_again_and_0_is_nothing() -> None:
    text = shown(1_795_255_200_123)
    assert text is not None and milliseconds(text, "--time") == 1_795_255_200_123
    assert shown(0) is None
