"""kill -9 of a real broker between any two steps of half, local transaction, end, check; SQLite has the ledger.

Producers work on until their connection dies; their successors after the restart answer checks from the table.  In the
end: every committed row is a message, no rolled-back one is, none is there twice.
"""

from __future__ import annotations

import random
import sqlite3
import time
from pathlib import Path

import pytest

from gantry.leaves import frames, properties, records
from gantry.wire import bodies
from testkit.process import GantryProcess
from testkit.rawclient import PULL, RawClient, pull_fields, send_fields

_GROUP = "payers"
_TOPIC = "orders"
_CONFIG = {
    "store.flush": "SYNC_FLUSH",
    "store.segment_bytes": str(256 * 1024),
    "messages.body_bytes_max": str(64 * 1024),
    "store.index_slots": "1000",
    "store.index_entries": "4000",
    "transactions.check_interval_s": "0.2",
    "transactions.immunity_s": "0",
    "transactions.checks_max": "0",
    "clients.offsets_save_s": "0.1",
}
_COMMIT, _ROLLBACK = 8, 12
_SETTLED_WITHIN_S = 60.0


class Business:
    """The producers' database: a row per order, written only when its half was acknowledged."""

    def __init__(self, path: Path) -> None:
        self._rows = sqlite3.connect(path)
        self._rows.execute("create table orders (id text primary key, outcome integer not null)")

    def write(self, key: str, outcome: int) -> None:
        """The local transaction."""
        with self._rows:
            self._rows.execute("insert into orders values (?, ?)", (key, outcome))

    def outcome(self, key: str) -> int:
        """What a checker answers: found means as it says, not found means it never happened."""
        found = self._rows.execute("select outcome from orders where id = ?", (key,)).fetchone()
        return _ROLLBACK if found is None else int(found[0])

    def committed(self) -> list[str]:
        """Everything that must be delivered."""
        return [key for (key,) in self._rows.execute("select id from orders where outcome = ? order by id", (_COMMIT,))]


class Producer(RawClient):
    """A member of the group that can be asked."""

    def __init__(self, address: tuple[str, int], business: Business) -> None:
        super().__init__(address)
        self._business = business
        beat = {"clientID": "me", "producerDataSet": [{"groupName": _GROUP}], "consumerDataSet": []}
        assert self.call(34, {}, bodies.dumps(beat)).code == 0

    def half(self, key: str) -> frames.Command:
        """Send one and wait for its acknowledgement."""
        ext = send_fields(_TOPIC, 0)
        ext["a"], ext["f"] = _GROUP, "4"
        ext["i"] = properties.pack({"UNIQ_KEY": key, "TRAN_MSG": "true", "PGROUP": _GROUP}).decode()
        return self.call(310, ext, key.encode())

    def end(self, queue_offset: str, log_offset: str, outcome: int, is_check: bool = False) -> None:
        """One-way, as stock clients do."""
        ext = {
            "producerGroup": _GROUP,
            "tranStateTableOffset": queue_offset,
            "commitLogOffset": log_offset,
            "commitOrRollback": str(outcome),
            "fromTransactionCheck": str(is_check).lower(),
            "msgId": "m",
        }
        command = frames.Command(37, opaque=1 << 30, ext=ext, flag=frames.FLAG_ONEWAY)
        self._socket.sendall(frames.encode(command))

    def answer_checks(self, seconds: float) -> None:
        """Answer what the broker asks for a while."""
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
                    outcome = self._business.outcome(command.ext["transactionId"])
                    offsets = command.ext["tranStateTableOffset"], command.ext["commitLogOffset"]
                    self.end(*offsets, outcome, is_check=True)


def _work(producer: Producer, business: Business, rng: random.Random, prefix: str, kill: GantryProcess) -> None:
    """Orders until the broker is killed, which happens between two steps of one of them."""
    last = rng.randint(3, 12)
    step = rng.randint(0, 3)
    for number in range(last + 1):
        key = f"{prefix}-{number}"
        is_last = number == last
        if is_last and step == 0:
            break
        answer = producer.half(key)
        assert answer.code == 0
        if is_last and step == 1:
            break
        outcome = rng.choice((_COMMIT, _COMMIT, _ROLLBACK))
        business.write(key, outcome)
        if is_last and step == 2:
            break
        if rng.random() < 0.7 or is_last:
            producer.end(answer.ext["queueOffset"], str(int(answer.ext["msgId"][16:], 16)), outcome)
    kill.kill()


def _delivered(client: RawClient) -> list[str]:
    keys: list[str] = []
    offset = 0
    while True:
        reply = client.call(PULL, pull_fields(_TOPIC, 0, offset))
        if reply.code != 0:
            return keys
        at = 0
        while at < len(reply.body):
            record = records.view(reply.body, at, len(reply.body))
            keys.append(properties.parse(record.properties)["UNIQ_KEY"])
            at += record.size
            offset = record.queue_offset + 1


def _rounds(folder: Path, seed: int, count: int) -> None:
    rng = random.Random(seed)
    business = Business(folder / "orders.db")
    for number in range(count):
        with GantryProcess(folder / "data", _CONFIG) as process:
            producer = Producer(process.broker, business)
            try:
                producer.answer_checks(rng.choice((0.0, 0.0, 0.3)))
                _work(producer, business, rng, f"o{number}", process)
            except OSError:
                process.kill()
            finally:
                producer.close()
    with GantryProcess(folder / "data", _CONFIG) as process, RawClient(process.broker) as reader:
        producer = Producer(process.broker, business)
        until = time.monotonic() + _SETTLED_WITHIN_S
        while _open_count(reader):
            assert time.monotonic() < until, "halves stay open although their producer answers"
            producer.answer_checks(0.3)
        assert sorted(_delivered(reader)) == business.committed()
        producer.close()
        process.stop()


def _open_count(client: RawClient) -> int:
    listed = bodies.loads_object(client.call(24001, {}).body)
    assert isinstance(listed["open"], int)
    return listed["open"]


def test_three_kills_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    _rounds(tmp_path, 7, 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_thirty_kills_lose_nothing_and_repeat_nothing(tmp_path: Path, seed: int) -> None:
    _rounds(tmp_path, seed, 30)
