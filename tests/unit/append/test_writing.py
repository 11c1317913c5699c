"""What the store says to a copy becomes a refusal, and a full disk shuts the gate."""

from __future__ import annotations

import pytest

from gantry.append.writing import append_copies
from gantry.errors import DiskFullError, Refusal, StoreError
from gantry.leaves import frames
from gantry.store.commitlog import RunTooLongError
from testkit.sendbackplay import HOST, SendBackPlay


def copy() -> frames.Send:
    return frames.Send(topic="T", body=b"x", born_host=HOST)


def test_copies_stand_in_the_log_up_to_the_end_that_is_given_back() -> None:
    play = SendBackPlay()
    assert append_copies(play.store, play.gate, [copy(), copy()]) == play.store.written.offset
    assert len(play.records("T")) == 2


@pytest.mark.parametrize(
    ("error", "code", "is_shut"),
    [(DiskFullError("no room"), 14, True), (RunTooLongError("long"), 13, False), (StoreError("broken"), 14, False)],
)
def test_an_error_of_the_store_is_a_refusal(
    error: StoreError, code: int, is_shut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = SendBackPlay()

    def fail(*_: object, **__: object) -> int:
        raise error

    monkeypatch.setattr(type(play.store), "append", fail)
    refusal = append_copies(play.store, play.gate, [copy()])
    assert isinstance(refusal, Refusal) and refusal.code == code
    assert (play.gate.refusal is not None) is is_shut


def test_while_the_gate_is_shut_nothing_is_tried() -> None:
    play = SendBackPlay()
    play.gate.shut("closing", Refusal(14, "closing"))
    assert append_copies(play.store, play.gate, [copy()]) == Refusal(14, "closing")
    assert play.store.written.offset == 0
