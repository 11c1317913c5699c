"""Ids are unique and have RocketMQ's layout."""

from __future__ import annotations

from datetime import UTC, datetime

from gantry.model.ids import UniqueIds


class SteppedClock:
    """Gives the instants it is told."""

    def __init__(self, at: datetime) -> None:
        self.ms = int(at.timestamp() * 1000)

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


def test_an_id_has_rocketmqs_layout() -> None:
    clock = SteppedClock(datetime(2024, 12, 2, tzinfo=UTC))
    ids = UniqueIds(bytes([10, 1, 2, 3]), 0x1_2345, 0xCAFEBABE, clock)
    assert ids.next() == "0A010203" + "2345" + "CAFEBABE" + f"{86_400_000:08X}" + "0001"
    assert len(UniqueIds(bytes(16), 1, 1, clock).next()) == 56


def test_ids_stay_unique_when_the_clock_goes_back_and_when_a_month_begins() -> None:
    clock = SteppedClock(datetime(2024, 12, 31, 23, 59, 59, tzinfo=UTC))
    ids = UniqueIds(bytes(4), 1, 1, clock)
    seen = [ids.next() for _ in range(1000)]
    clock.ms += 1000
    seen += [ids.next() for _ in range(1000)]
    assert seen[-1][20:28] == "00000000"
    clock.ms -= 500
    seen += [ids.next() for _ in range(1000)]
    assert len(set(seen)) == 3000


def test_ids_that_are_taken_together_are_as_unique_as_others() -> None:
    ids = UniqueIds(bytes(4), 1, 1, SteppedClock(datetime(2024, 12, 31, 23, 59, 59, 995_000, tzinfo=UTC)))
    seen = [ids.next(), *ids.take(200_000), ids.next(), *ids.take(1), *ids.take(0), ids.next()]
    assert len(set(seen)) == len(seen) == 200_004
    assert {len(each) for each in seen} == {32} and all(each == each.upper() for each in seen)
    assert seen[0][-4:] == "0001" and seen[1][-4:] == "0002" and seen[-1][20:28] < "00000FFF"
