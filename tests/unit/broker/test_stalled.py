"""A disk that hangs shuts the gate of writes, and one that answers again opens it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gantry.append.admit import WriteGate
from gantry.broker.stalled import GATE_STALLED, HOUSEKEEPING_S, StalledDisk
from gantry.wire.codes import ResponseCode


@pytest.mark.parametrize(
    ("seconds", "is_shut"),
    [((0.0, 0.0), False), ((1.9, 0.0), False), ((2.0, 0.0), True), ((0.0, 59.9), False), ((0.0, HOUSEKEEPING_S), True)],
)
def test_messages_are_refused_with_a_reason_for_as_long_as_the_disk_hangs(
    seconds: tuple[float, float], is_shut: bool
) -> None:
    gate, found = WriteGate(), [seconds]
    stalled = StalledDisk(SimpleNamespace(look=lambda: found[0]), gate, 2.0)  # type: ignore[arg-type]
    for _ in range(2):
        stalled.look()
        assert stalled.unanswered_s == max(seconds) and (gate.reasons == [GATE_STALLED]) is is_shut
    if gate.refusal is not None:
        assert gate.refusal.code == ResponseCode.SERVICE_NOT_AVAILABLE and "has not finished" in gate.refusal.remark
    found[0] = (0.0, 0.0)
    stalled.look()
    assert not gate.reasons and stalled.unanswered_s == 0.0
