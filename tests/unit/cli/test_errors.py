from __future__ import annotations

from collections.abc import Callable

import pytest

from gantry.cli.errors import report
from gantry.errors import ConfigError, GantryError, OutcomeUnknownError, RefusedError, UnreachableError


def _raising(error: BaseException) -> Callable[[], int]:
    def work() -> int:
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ConfigError("flag pull.cuont: unknown"), 2, "pull.cuont"),
        (RefusedError(17, "no such topic"), 1, "refused with code 17: no such topic"),
        (UnreachableError("127.0.0.1:9876 does not answer"), 3, "--namesrv"),
        (OutcomeUnknownError("no answer in 3 s"), 3, "may have been carried out or not"),
        (GantryError("anything else"), 1, "anything else"),
    ],
)
def test_an_error_of_ours_is_one_line_and_a_code(
    error: GantryError, code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(_raising(error)) == code
    said = capsys.readouterr().err
    assert said.startswith("gantry: ")
    assert said.count("\n") == 1
    assert text in said


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        report(_raising(ZeroDivisionError()))


def test_an_interrupt_ends_quietly(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(_raising(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == ""
