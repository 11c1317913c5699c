"""One transaction queue on a stand-in of the server, with its application and a checker in another process's place."""

from __future__ import annotations

import sqlite3

from gantry.mns.transactionsteps import LocalOutcome
from gantry.mns.transactiontable import SQLITE, fence, record, statements
from testkit.mnsshells import TIMES, Shell
from testkit.mnsstandin import Standin

SQL = statements(SQLITE)
LOG = "orders-operation-log-queue"


class TransactionPlay:
    """One transaction queue, its application, and the server's insides."""

    def __init__(self, standin: Standin, at_work: Shell, database: sqlite3.Connection) -> None:
        self.standin, self.shell, self.database = standin, at_work, database
        database.execute(SQL.create)
        self.queue = at_work.transaction_queue()
        self.queue.create()
        # Another process: it knows nothing of the blocks that run in the producer.
        self.checking = at_work.transaction_queue()
        self.checker = at_work.checker(self.checking, self.ask)
        self.asked: list[str] = []

    def ask(self, handle: str) -> LocalOutcome:
        """As an application answers: a fence under the key, unless the row is there."""
        self.asked.append(handle)
        return fence(self.database, SQL, handle, 0)

    def record(self, handle: str) -> None:
        """The local transaction, committed."""
        with self.database:
            record(self.database.cursor(), SQL, handle, 0)

    def check(self) -> int:
        """Let the timeout pass, and check what is there; how many logs there were."""
        self.standin.pass_s(TIMES.timeout_s)
        found: int = self.checker.check()
        return found

    def seen(self) -> list[str]:
        """What consumers see once a commit has taken effect."""
        self.standin.pass_s(1)
        return self.standin.visible("orders")

    @property
    def logs(self) -> int:
        """Operation logs that are there."""
        return self.standin.left(LOG)
