"""One play of a transaction queue in which something is killed: its programs, its end, and what must be true then."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from gantry.errors import GantryError
from gantry.mns.blocking import BlockingAccount
from gantry.mns.exchange import AccountSettings
from gantry.mns.transactionrules import log_queue
from gantry.mns.values import QueueAttributes
from testkit import mnsprogram
from testkit.patience import HANG_S
from testkit.process import _environment
from testkit.sources import ROOT

QUIET_S = 15.0  # a message is visible a second after its commit
SETTLED_S = 2.0  # counts are exact within a second: a message on its way from delayed to active is in neither
SCRIPT = str(ROOT / "tests/testkit/mnsprogram.py")


class CrashPlay:
    """A transaction queue of its own with its database; `begin` makes both queues."""

    def __init__(self, endpoint: str, queue: str, folder: Path) -> None:
        self.endpoint, self.queue = endpoint, queue
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.database = str(folder / "orders.db")
        mnsprogram.connect(self.database).close()

    def begin(self) -> None:
        """Make the queues; what is leased comes again soon."""
        with self.program("checker") as here:
            here.queue.create()
            for name in (self.queue, log_queue(self.queue)):
                here.account.queue(name).set_attributes(QueueAttributes(visibility_s=mnsprogram.VISIBILITY_S))

    @contextlib.contextmanager
    def program(self, role: str) -> Iterator[mnsprogram.Program]:
        """One of the programs in this process."""
        arguments = mnsprogram.parser().parse_args([role, self.endpoint, self.queue, self.database])
        settings = AccountSettings(self.endpoint, timeout_s=20, attempts=8)
        with BlockingAccount(settings) as account, closing(mnsprogram.connect(self.database)) as database:
            yield mnsprogram.Program(arguments, account, database)

    @contextlib.contextmanager
    def process(self, role: str, *more: str) -> Iterator[subprocess.Popen[str]]:
        """One of the programs in a process of its own, which is ended with the block."""
        command = [sys.executable, SCRIPT, role, self.endpoint, self.queue, self.database, *more]
        environment = _environment({})
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(ROOT / "tests"), *filter(None, [environment.get("PYTHONPATH")])]
        )
        with (self.folder / f"{role}.log").open("ab") as log:
            popen = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment, text=True
            )
        try:
            yield popen
        finally:
            popen.kill()
            popen.communicate(timeout=HANG_S)

    def settle(self) -> None:
        """Check and consume until, for SETTLED_S, every committed order was consumed and the operation log was empty.

        Or until nothing is visible, leased or to be checked for QUIET_S: what is missing then is lost.
        """
        began = quiet_since = settled_since = time.monotonic()
        with self.program("checker") as checking, self.program("consumer") as consuming:
            while True:
                now = time.monotonic()
                assert now < began + HANG_S, f"never settled: {self.state(checking)}\n{self.story()}"
                found = 1
                with contextlib.suppress(GantryError):
                    found = checking.check(1) + consuming.consume(1)
                counts = self._counts(checking, self.queue)
                is_log_empty = self._is_settled(checking)
                if found or counts is None or counts[:2] != (0, 0) or not is_log_empty:
                    quiet_since = now
                if found or not is_log_empty or self.lost():
                    settled_since = now
                if now > min(quiet_since + QUIET_S, settled_since + SETTLED_S):
                    return

    def _is_settled(self, checking: mnsprogram.Program) -> bool:
        return self._counts(checking, log_queue(self.queue)) == (0, 0, 0)

    def _counts(self, checking: mnsprogram.Program, name: str) -> tuple[int, int, int] | None:
        try:
            found = checking.account.queue(name).status()
        except GantryError:
            return None
        return found.active, found.inactive, found.delayed

    def state(self, checking: mnsprogram.Program) -> str:
        """What is where."""
        counts = {name: self._counts(checking, name) for name in (self.queue, log_queue(self.queue))}
        return f"active, inactive, delayed: {counts}; not consumed: {sorted(self.lost())}"

    def rows(self, statement: str) -> set[str]:
        """The first column of a question to the database."""
        with closing(sqlite3.connect(self.database, timeout=60)) as database:
            return {row[0] for row in database.execute(statement)}

    def lost(self) -> set[str]:
        """Committed, and not consumed."""
        return self.rows("SELECT body FROM orders") - self.rows("SELECT body FROM consumed")

    def verify(self, delayed: Sequence[int]) -> None:
        """Everything that must be true at the end; `delayed` has the allowed counts of prepared messages left."""
        committed, consumed = self.rows("SELECT body FROM orders"), self.rows("SELECT body FROM consumed")
        assert committed - consumed == set(), f"lost: {self.lost()}\n{self.story()}"
        assert consumed - committed == set(), f"seen without a transaction: {consumed - committed}\n{self.story()}"
        with self.program("checker") as checking:
            end = time.monotonic() + HANG_S
            # A message that a killed consumer held, or one that was handled and is not deleted yet.
            while (found := self._counts(checking, self.queue)) is None or found[:2] != (0, 0):
                assert time.monotonic() < end, f"{self.state(checking)}\n{self.story()}"
                with self.program("consumer") as consuming, contextlib.suppress(GantryError):
                    consuming.consume(1)
            assert found[2] in delayed, f"{found[2]} prepared messages are left, expected one of {list(delayed)}"
            assert self._is_settled(checking), self.state(checking)
        assert self.rows("SELECT body FROM consumed") - committed == set()

    def story(self) -> str:
        """The ends of the programs' logs."""
        return "\n".join(f"--- {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self.folder.glob("*.log")))


def until_there(popen: subprocess.Popen[str], place: str, story: CrashPlay) -> None:
    """Until the program says that it is at a place."""
    assert popen.stdout is not None
    line = popen.stdout.readline()
    assert line == f"at {place}\n", f"{line!r} instead of {place}\n{story.story()}"


def until_killed(popen: subprocess.Popen[str], place: str, story: CrashPlay) -> None:
    """Until the program has killed itself at its place."""
    assert popen.wait(HANG_S) == -signal.SIGKILL, f"it was never at {place}\n{story.story()}"


def go_on(popen: subprocess.Popen[str]) -> None:
    """Let a program go on that waits at a place."""
    assert popen.stdin is not None
    popen.stdin.write("\n")
    popen.stdin.flush()
