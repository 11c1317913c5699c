from __future__ import annotations

from typing import Any

from gantry.broker.releasing import Releasing


class _Connection:
    def __init__(self, has_output: bool) -> None:
        self.peer = "10.0.0.1:1"
        self.has_output = has_output
        self.aborted = 0

    def abort(self, reason: str) -> None:
        self.aborted += 1
        self.has_output = False


class _Server:
    def __init__(self, *connections: Any) -> None:
        self.connections = set(connections)


def test_only_who_had_output_then_and_has_it_still_is_cut_off() -> None:
    stuck, quick, late = _Connection(True), _Connection(True), _Connection(False)
    releasing = Releasing(_Server(stuck, quick, late))
    releasing.lingers(16384)
    quick.has_output, late.has_output = False, True
    releasing.hangs(16384)
    assert (stuck.aborted, quick.aborted, late.aborted) == (1, 0, 0)
    releasing.hangs(16384)
    assert (stuck.aborted, quick.aborted, late.aborted) == (1, 0, 1), "who came later is next, if that was not enough"


def test_what_nobody_was_told_of_harms_nobody() -> None:
    one = _Connection(True)
    releasing = Releasing(_Server(one))
    releasing.hangs(7)
    assert one.aborted == 0
    for start in range(200):
        releasing.lingers(start)
    releasing.hangs(0)
    assert one.aborted == 0, "only the newest are remembered"
