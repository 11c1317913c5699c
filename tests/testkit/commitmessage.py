"""Check a commit message: a subject of at most 72 characters, an empty line, and a body.

    python tests/testkit/commitmessage.py FILE

The commit-msg hook of `.pre-commit-config.yaml` calls it with git's file.  It prints one line for each fault and exits
with 1 when there is one.  Comments and the diff of `git commit --verbose` do not count.  Messages that git writes
itself (merges, fixups for a rebase) pass.

Whether the subject is in the imperative and whether the body says why is left to the reviewer.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

SUBJECT_MAX = 72
_SCISSORS = re.compile(r"^# -+ >8 -+$.*", re.MULTILINE | re.DOTALL)
_BY_GIT = ("Merge ", "fixup! ", "squash! ", "amend! ")
_TRAILER = re.compile(r"[A-Z][\w-]*-by: ")


def faults(message: str) -> list[str]:
    """Return what is wrong with the message, one sentence for each fault; empty when nothing is."""
    kept = [line for line in _SCISSORS.sub("", message).splitlines() if not line.startswith("#")]
    lines = "\n".join(kept).strip().splitlines()
    if not lines:
        return ["the message is empty"]
    subject, rest = lines[0], lines[1:]
    if subject.startswith(_BY_GIT):
        return []
    found = []
    if len(subject) > SUBJECT_MAX:
        found.append(f"the subject has {len(subject)} characters, at most {SUBJECT_MAX} are allowed: {subject}")
    if rest and rest[0].strip():
        found.append(f"the second line is not empty: {rest[0]}")
    if not any(line.strip() and not _TRAILER.match(line) for line in rest):
        found.append("there is no body; say why, and what a user notices")
    return found


def main(arguments: list[str]) -> int:
    """Check the file that is named; return the exit code."""
    found = faults(Path(arguments[0]).read_text(encoding="utf-8"))
    for fault in found:
        print(f"commit message: {fault}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
