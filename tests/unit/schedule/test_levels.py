"""The table of delay levels."""

from __future__ import annotations

import pytest

from gantry.schedule import levels
from gantry.store.settings import StoreSettings


def test_the_standard_table_is_rocketmqs() -> None:
    table = levels.parse(levels.STANDARD)
    assert len(table) == 18 and (table[0], table[2], table[17]) == (1_000, 10_000, 7_200_000)
    assert table == StoreSettings("/store").delay_levels_ms


def test_all_units_are_understood() -> None:
    assert levels.parse(" 2s 3m\t4h 1d ") == (2_000, 180_000, 14_400_000, 86_400_000)


@pytest.mark.parametrize("text", ["", "5", "s", "-1s", "1.5s", "1s 2x", "٣s", "367d", "1s " * 65])
def test_what_is_no_table_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="delay level"):
        levels.parse(text)
