from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantry.model import population
from gantry.model.population import Population

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 300)),
        st.tuples(st.just("remove"), st.integers(0, 300)),
        st.tuples(st.just("ask"), st.integers(0, 310_000)),
    ),
    max_size=80,
)


@given(STEPS)
def test_a_population_counts_like_a_table(steps: list[tuple[str, int]]) -> None:
    table: Counter[int] = Counter()
    found = Population()
    for kind, number in steps:
        if kind == "add":
            table[number] += 1
            found.add(number)
        elif kind == "remove":
            table[number] = max(0, table[number] - 1)
            found.add(number, -1)
        else:
            assert found.living(number) == sum(count for second, count in table.items() if second >= number // 1000)
        assert found.living(None) == found.total == table.total()


def test_a_population_of_many_seconds_stays_small_and_is_right_to_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(population, "SECONDS_MAX", 100)
    found = Population()
    for second in range(1_000):
        found.add(second)
        found.living(second * 500)
    assert len(found._by_bucket) <= 100
    assert abs(found.living(500_000) - 500) <= 16
    for second in range(1_000):
        found.add(second, -1)
    assert found.total == found.living(0) == found.living(500_000) == 0
