"""Transactional producers by hand, whose local transactions are rows of SQLite: the ledger of crash tests.

A row is written only when its half was acknowledged, and a checker answers from the table; so whatever dies at
whatever moment, in the end every committed row is a message, no rolled-back one is, and none is there twice.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from gantry.leaves import frames, properties, records
from gantry.wire import bodies
from testkit.rawclient import PULL, RawClient, pull_fields, send_fields

GROUP, TOPIC = "payers", "orders"
COMMIT, ROLLBACK = 8, 12


class Business:
    """The producers' database: a row per order, written only when its half was acknowledged."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._run("create table orders (id text primary key, outcome integer not null)")

    def write(self, key: str, outcome: int) -> None:
        """The local transaction."""
        self._run("insert into orders values (?, ?)", key, outcome)

    def outcome(self, key: str) -> int:
        """What a checker answers: found means as it says, not found means it never happened."""
        found = self._run("select outcome from orders where id = ?", key)
        return int(found[0][0]) if found else ROLLBACK

    def committed(self) -> list[str]:
        """Everything that must be delivered."""
        return [key for (key,) in self._run("select id from orders where outcome = ? order by id", COMMIT)]

    def _run(self, statement: str, *parameters: object) -> list[Any]:
        with closing(sqlite3.connect(self._path)) as database, database:
            return database.execute(statement, parameters).fetchall()


class Producer(RawClient):
    """A member of the group that can be asked."""

    def __init__(self, address: tuple[str, int], business: Business) -> None:
        super().__init__(address)
        self.asked: set[str] = set()  # what a broker wanted to know
        self._business = business
        beat = {"clientID": "me", "producerDataSet": [{"groupName": GROUP}], "consumerDataSet": []}
        assert self.call(34, {}, bodies.dumps(beat)).code == 0

    def half(self, key: str) -> frames.Command:
        """Send one and wait for its acknowledgement."""
        ext = send_fields(TOPIC, 0)
        ext["a"], ext["f"] = GROUP, "4"
        ext["i"] = properties.pack({"UNIQ_KEY": key, "TRAN_MSG": "true", "PGROUP": GROUP}).decode()
        return self.ask(310, ext, key.encode())

    def end(self, queue_offset: str, log_offset: str, outcome: int, is_check: bool = False) -> None:
        """One-way, as stock clients do."""
        ext = {
            "producerGroup": GROUP,
            "tranStateTableOffset": queue_offset,
            "commitLogOffset": log_offset,
            "commitOrRollback": str(outcome),
            "fromTransactionCheck": str(is_check).lower(),
            "msgId": "m",
        }
        command = frames.Command(37, opaque=1 << 30, ext=ext, flag=frames.FLAG_ONEWAY)
        self._socket.sendall(frames.encode(command))

    def answer_checks(self, seconds: float, is_silent: bool = False) -> None:
        """Answer what the broker asks for a while, or only hear it."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                piece = self._socket.recv(1 << 16)
            except TimeoutError:
                return
            if not piece:
                raise ConnectionResetError
            self._received += piece
            used, commands = frames.decode(self._received, 0, len(self._received))
            del self._received[:used]
            for command in commands:
                if command.code == 39 and isinstance(command, frames.Command):
                    key = command.ext["transactionId"]
                    self.asked.add(key)
                    offsets = command.ext["tranStateTableOffset"], command.ext["commitLogOffset"]
                    if not is_silent:
                        self.end(*offsets, self._business.outcome(key), is_check=True)


def delivered(client: RawClient) -> list[str]:
    """The keys of every message of the topic's first queue."""
    keys: list[str] = []
    offset = 0
    while True:
        reply = client.ask(PULL, pull_fields(TOPIC, 0, offset))
        if reply.code != 0:
            return keys
        at = 0
        while at < len(reply.body):
            record = records.view(reply.body, at, len(reply.body))
            keys.append(properties.parse(record.properties)["UNIQ_KEY"])
            at += record.size
            offset = record.queue_offset + 1


def open_count(client: RawClient) -> int:
    """How many halves are open."""
    answer = client.ask(24001, {})
    assert answer.code == 0, answer.remark
    listed = bodies.loads_object(answer.body)
    assert isinstance(listed["open"], int)
    return listed["open"]
