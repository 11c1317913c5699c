"""Commit messages that the hook lets through, and those that it refuses with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit import commitmessage
from testkit.commitmessage import faults

SUBJECT = "Bound UNIQ_KEY before a half is stored"
BODY = "A key of a megabyte was stored and could not be found again.\nA producer now gets MESSAGE_ILLEGAL."


@pytest.mark.parametrize(
    "message",
    [
        f"{SUBJECT}\n\n{BODY}\n",
        f"{'x' * 72}\n\n{BODY}",
        f"\n# a comment of git's\n{SUBJECT}\n\n{BODY}\n# Changes to be committed:\n#\tmodified: README.md\n",
        f"{SUBJECT}\n\n{BODY}\n\nSigned-off-by: A <a@example.org>\n",
        f"{SUBJECT}\n\n{BODY}\n# ------------------------ >8 ------------------------\n# below: the diff\ndiff --git\n",
        "Merge branch 'main' into topic\n",
        f"fixup! {SUBJECT}\n",
    ],
    ids=["plain", "72 characters", "comments", "signed off", "verbose", "merge", "fixup"],
)
def test_a_message_with_a_short_subject_and_a_body_passes(message: str) -> None:
    assert faults(message) == []


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("", "is empty"),
        ("\n# only git's comment\n", "is empty"),
        (f"{'x' * 73}\n\n{BODY}", "73 characters, at most 72"),
        (SUBJECT, "no body"),
        (f"{SUBJECT}\n\n\n# Changes to be committed:\n", "no body"),
        (f"{SUBJECT}\n\nSigned-off-by: A <a@example.org>\n", "no body"),
        (f"{SUBJECT}\n# ------------------------ >8 ------------------------\n\ndiff --git\n", "no body"),
        (f"{SUBJECT}\n{BODY}", "second line is not empty"),
    ],
    ids=["empty", "comments", "73", "subject alone", "empty lines", "trailer alone", "diff", "no empty line"],
)
def test_any_other_message_is_refused_with_the_reason(message: str, reason: str) -> None:
    (fault,) = faults(message)
    assert reason in fault


def test_two_faults_are_both_told() -> None:
    assert len(faults("x" * 100)) == 2


def test_the_hook_prints_the_faults_and_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text(f"{SUBJECT}\n")
    assert commitmessage.main([str(file)]) == 1
    assert capsys.readouterr().err == "commit message: there is no body; say why, and what a user notices\n"
    file.write_text(f"{SUBJECT}\n\n{BODY}\n")
    assert commitmessage.main([str(file)]) == 0
