"""The programs of the crash tests of transaction queues: `producer`, `checker`, `consumer`, each a process of its own.

    python mnsprogram.py ROLE ENDPOINT QUEUE DATABASE [--place PLACE --then die|pause] [--bodies a,b] [--seed 7]

The application's database is one SQLite file: `mns_transaction` (gantry.mns.transactiontable), `attempts` (what was
begun), `orders` (what a local transaction has committed), `consumed` (what a consumer has seen).
At the first visit of PLACE (gantry.mns.crashplaces) the process kills itself, or says `at PLACE` and waits for a line.
A body that begins with `c` commits, with `r` rolls back, with `u` fails in between, with `l` leaves a committed and
with `n` a local transaction that was rolled back to a check.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

from gantry.errors import GantryError
from gantry.mns.blocking import BlockingAccount
from gantry.mns.blockingchecker import BlockingTransactionChecker
from gantry.mns.blockingtransaction import BlockingTransactionQueue
from gantry.mns.errors import MessageNotExistError
from gantry.mns.exchange import AccountSettings, Call
from gantry.mns.settling import LocalRollback
from gantry.mns.transactionrules import LOG_SUFFIX, TransactionTimes
from gantry.mns.transactionsteps import LocalOutcome
from gantry.mns.transactiontable import SQLITE, fence, record, statements

log = logging.getLogger(__name__)
SQL = statements(SQLITE)
TIMES = TransactionTimes(timeout_s=1, check_within_s=3600)
VISIBILITY_S = 2
TABLES = (
    SQL.create,
    "CREATE TABLE IF NOT EXISTS attempts (body TEXT PRIMARY KEY, message_id TEXT)",
    "CREATE TABLE IF NOT EXISTS orders (body TEXT PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS consumed (body TEXT, times INTEGER)",
)
# What a request of a transaction queue is, by method and whether it goes to the operation log.
_AFTER = {
    ("POST", False): "AFTER_PREPARE", ("POST", True): "AFTER_LOG", ("PUT", False): "AFTER_COMMIT",
    ("DELETE", False): "AFTER_ROLLBACK", ("DELETE", True): "AFTER_CONFIRM",
}  # fmt: skip
_OF_CHECKS = {
    "AFTER_COMMIT": "CHECK_COMMITTED", "AFTER_ROLLBACK": "CHECK_ROLLED_BACK", "AFTER_CONFIRM": "CHECK_CONFIRMED",
}  # fmt: skip


def connect(path: str) -> sqlite3.Connection:
    """Open the application's database, which is made when it is not there."""
    connection = sqlite3.connect(path, timeout=60)
    for table in TABLES:
        connection.execute(table)
    connection.commit()
    return connection


class Places:
    """Where this process ends or waits; each place counts once."""

    def __init__(self, wanted: str, then: str) -> None:
        self._wanted, self._then = wanted, then

    def at(self, place: str) -> None:
        """The process is there."""
        if not place or place != self._wanted:
            return
        self._wanted = ""
        if self._then == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        print(f"at {place}", flush=True)
        sys.stdin.readline()


class Program:
    """One process at work."""

    def __init__(self, arguments: argparse.Namespace, account: BlockingAccount, database: sqlite3.Connection) -> None:
        self.arguments, self.account, self.database = arguments, account, database
        self.places = Places(arguments.place, arguments.then)
        self.queue = BlockingTransactionQueue(account, arguments.queue, TIMES)
        self._perform: Callable[[Call[Any]], Any] = self.queue.perform
        self.queue.perform = self.perform

    def perform(self, call: Call[Any]) -> Any:
        """Send a request; the places before and after it."""
        is_log = LOG_SUFFIX in call.target
        place = _AFTER.get((call.method, is_log), "") if "/messages" in call.target else ""
        if place == "AFTER_PREPARE":
            self.places.at("BEFORE_PREPARE")
        answer = self._perform(call)
        if self.arguments.role == "checker":
            place = _OF_CHECKS.get(place, "")
            if call.method == "GET" and "/messages" in call.target and answer:
                place = "CHECK_RECEIVED"
        self.places.at(place)
        return answer

    def produce(self, body: str) -> None:
        """One transaction, as the first letter of its body wants it."""
        with self.database:
            self.database.execute("INSERT INTO attempts (body) VALUES (?)", (body,))
        with self.queue.transaction(body) as transaction:
            self._think(body)
            try:
                record(self.database.cursor(), SQL, transaction.handle, 0)
                self.database.execute("INSERT INTO orders VALUES (?)", (body,))
                self.places.at("IN_LOCAL")
                if body[0] in "rn":
                    self.database.rollback()
                    self.places.at("AFTER_LOCAL_ROLLBACK")
                else:
                    self.database.commit()
                    self.places.at("AFTER_LOCAL_COMMIT")
            except (sqlite3.IntegrityError, sqlite3.OperationalError):  # a fence; or too long a wait for others
                self.database.rollback()
                raise LocalRollback from None
            if body[0] == "r":
                raise LocalRollback
            if body[0] == "u":
                raise ConnectionError("the answer of the database was lost")
            if body[0] in "ln":
                transaction.leave()

    def _think(self, body: str) -> None:
        """Take longer than the timeout now and then: a checker leaves a fence meanwhile."""
        longest_s = self.arguments.pause_max_s
        threading.Event().wait(random.Random(body).choice((0, 0, longest_s)))

    def ask(self, handle: str) -> LocalOutcome:
        """As the application answers a check."""
        outcome = fence(self.database, SQL, handle, 0)
        if outcome is LocalOutcome.ROLLED_BACK:
            self.places.at("CHECK_FENCED")
        return outcome

    def check(self, wait_s: int = 1) -> int:
        """One check."""
        return BlockingTransactionChecker(self.queue, self.ask).check(wait_s)

    def consume(self, wait_s: int = 1) -> int:
        """Receive, write down, delete; how many."""
        queue = self.account.queue(self.arguments.queue)
        messages = queue.receive(16, wait_s)
        for message in messages:
            self.places.at("CONSUMER_RECEIVED")
            with self.database:
                self.database.execute("INSERT INTO consumed VALUES (?, ?)", (message.text, message.dequeue_count))
            self.places.at("CONSUMER_HANDLED")
            try:
                queue.delete(message.handle)
            except MessageNotExistError:
                log.warning("%s came too late to be deleted", message.text)
            self.places.at("CONSUMER_DELETED")
        return len(messages)

    def run(self) -> None:
        """Do what the role does, for the bodies or until it is killed; errors of the server are part of the play."""
        if self.arguments.role != "producer":
            while True:
                attempt(self.check if self.arguments.role == "checker" else self.consume)
        for body in self.bodies():
            attempt(lambda body=body: self.produce(body))  # type: ignore[misc]

    def bodies(self) -> Any:
        """Those that were given, or a random endless row by the seed."""
        if self.arguments.bodies:
            yield from self.arguments.bodies.split(",")
            return
        chance = random.Random(self.arguments.seed)
        number = 0
        while True:
            number += 1
            yield f"{chance.choice('cccrrruln')}-{self.arguments.seed}-{number}"


def attempt(what: Callable[[], object]) -> None:
    """Do it; an error is written down."""
    try:
        what()
    except (GantryError, ConnectionError, sqlite3.OperationalError) as error:
        log.warning("%s: %s", type(error).__name__, error)


def parser() -> argparse.ArgumentParser:
    """The arguments of the module's head."""
    made = argparse.ArgumentParser()
    for name in ("role", "endpoint", "queue", "database"):
        made.add_argument(name)
    for name, default in (("--place", ""), ("--then", "die"), ("--bodies", ""), ("--seed", "0")):
        made.add_argument(name, default=default)
    made.add_argument("--pause-max-s", type=float, default=0.0)
    return made


def main() -> None:
    """Run one program."""
    arguments = parser().parse_args()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {arguments.role} %(message)s")
    settings = AccountSettings(arguments.endpoint, timeout_s=20)
    with BlockingAccount(settings) as account, closing(connect(arguments.database)) as database:
        Program(arguments, account, database).run()


if __name__ == "__main__":
    main()
