"""gantry.mns against `gantry queues`: every call on both shells, and transaction queues over real time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from gantry.mns.errors import (
    LateCommitError,
    MessageNotExistError,
    PartialDeleteError,
    QueueAlreadyExistError,
    QueueNotExistError,
    ReceiptHandleError,
)
from gantry.mns.settling import TransactionTally
from gantry.mns.transactionrules import TransactionTimes, log_queue
from gantry.mns.transactionsteps import Settlement
from gantry.mns.transactiontable import SQLITE, fence, record, statements
from gantry.mns.values import HANDLE_MAX, NewMessage, QueueAttributes
from testkit.mnsservers import QueueServers
from testkit.mnsshells import SHELLS, Shell, shell

SQL = statements(SQLITE)
# The shortest life that a server takes is a minute.
SHORT = TransactionTimes(timeout_s=1, check_within_s=3, life_s=65, delay_s=70)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueServers]:
    with QueueServers(tmp_path_factory.mktemp("queues")) as running:
        yield running


@pytest.fixture(params=SHELLS)
def at_work(request: pytest.FixtureRequest, servers: QueueServers) -> Iterator[Shell]:
    with shell(request.param, servers.endpoint) as made:
        yield made


def queue_of(at_work: Shell, name: str, **attributes: Any) -> Any:
    """A new queue of this shell."""
    queue = at_work.account.queue(f"{name}-{at_work.kind}")
    assert queue.create(QueueAttributes(**attributes)) is True
    return queue


def test_a_queue_is_made_described_changed_listed_and_deleted(at_work: Shell) -> None:
    queue = queue_of(at_work, "described", delay_s=1, size_max=2048, life_s=60, visibility_s=5, wait_s=3)
    assert queue.create(QueueAttributes(1, 2048, 60, 5, 3)) is False
    with pytest.raises(QueueAlreadyExistError):
        queue.create()
    queue.set_attributes(QueueAttributes(visibility_s=9, logging=True))
    found = queue.status()
    assert found.attributes == QueueAttributes(1, 2048, 60, 9, 3, logging=True)
    assert (found.name, found.active, found.inactive, found.delayed) == (queue.name, 0, 0, 0)
    assert list(at_work.account.queue_names("described")).count(queue.name) == 1
    queue.delete_queue()
    queue.delete_queue()
    with pytest.raises(QueueNotExistError):
        queue.status()


def test_a_message_goes_there_and_back_as_text_and_as_bytes(at_work: Shell) -> None:
    queue = queue_of(at_work, "texts")
    texts = ["<tea> & \"'", "a\r\nb\rc\n", "\u8336 \U0001f375", " blank "]
    for text in texts:
        queue.send(text)
    queue.send(bytes(range(256)))
    found: list[Any] = []
    while len(found) < len(texts) + 1:
        found += queue.receive(16, wait_s=5)
    assert {each.text for each in found} >= set(texts)
    (other,) = (each for each in found if each.text not in texts)
    assert other.body() == bytes(range(256))
    assert all(len(each.handle) <= HANDLE_MAX for each in found)
    queue.delete_many([each.handle for each in found])
    with pytest.raises(PartialDeleteError):
        queue.delete_many([each.handle for each in found])
    assert queue.receive(16, wait_s=0) == ()


def test_handles_are_good_once_and_priorities_count(at_work: Shell) -> None:
    queue = queue_of(at_work, "handles")
    queue.send_many([NewMessage("last", priority=16), NewMessage("first", priority=1), NewMessage("later", 60)])
    (peeked,) = queue.peek()
    assert (peeked.text, peeked.handle) == ("first", "")
    (first,) = queue.receive(wait_s=5)
    assert (first.text, first.priority, first.dequeue_count) == ("first", 1, 1)
    changed = queue.change_visibility(first.handle, 30)
    assert changed.next_visible_ms > first.enqueued_ms + 29_000
    with pytest.raises(MessageNotExistError):
        queue.delete(first.handle)
    queue.delete(changed.handle)
    with pytest.raises(ReceiptHandleError):
        queue.delete("nonsense")
    delayed = queue.send("never", delay_s=60)
    assert 0 < len(delayed.handle) <= HANDLE_MAX
    queue.delete(delayed.handle)
    found = queue.status()
    assert (found.active, found.inactive, found.delayed) == (1, 0, 1)


def test_a_transaction_is_committed_rolled_back_or_checked(at_work: Shell) -> None:
    name = f"transactions-{at_work.kind}"
    queue, checking = (at_work.transaction_queue(name, TransactionTimes(timeout_s=1)) for _ in range(2))
    queue.create()
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as database:
        database.execute(SQL.create)
        checker = at_work.checker(checking, lambda handle: fence(database, SQL, handle, 0))
        for body in ("committed", "rolled back", "checked", "forgotten"):
            with queue.transaction(body, priority=3) as transaction:
                if body in ("committed", "checked"):
                    record(database.cursor(), SQL, transaction.handle, 0)
                    database.commit()
                if body == "rolled back":
                    transaction.rollback()
                if body in ("checked", "forgotten"):
                    transaction.leave()
        checked = 0
        while checked < 2:
            checked += checker.check(5)
    assert queue.tally == TransactionTally(prepared=4, committed=1, rolled_back=1, left=2)
    assert checking.tally == TransactionTally(checked=2, committed=1, rolled_back=1)
    consumer = at_work.account.queue(name)
    seen: list[tuple[str, int]] = []
    while len(seen) < 2:
        for message in consumer.receive(16, wait_s=5):
            seen.append((message.text, message.priority))
            consumer.delete(message.handle)
    assert sorted(seen) == [("checked", 3), ("committed", 3)]
    for each in (name, log_queue(name)):
        found = at_work.account.queue(each).status()
        assert (found.active, found.inactive, found.delayed) == (0, 0, 0)


def test_the_first_of_commit_and_rollback_counts(at_work: Shell) -> None:
    queue = at_work.transaction_queue(f"twice-{at_work.kind}")
    queue.create()
    one, other = queue.prepare("committed"), queue.prepare("rolled back")
    assert [queue.commit(one), queue.commit(one), queue.rollback(one)] == [
        Settlement.NOW, Settlement.BEFORE, Settlement.BEFORE,
    ]  # fmt: skip
    assert [queue.rollback(other), queue.commit(other)] == [Settlement.NOW, Settlement.BEFORE]
    consumer = at_work.account.queue(queue.name)
    (seen,) = consumer.receive(16, wait_s=20)
    assert seen.text == "committed" and queue.commit(one) is Settlement.BEFORE
    consumer.delete(seen.handle)


@pytest.mark.slow
def test_what_nobody_commits_is_never_seen_and_a_late_commit_raises(servers: QueueServers) -> None:
    """Over a minute of real time: the shortest life that there is."""
    with shell("blocking", servers.endpoint) as at_work:
        queue = at_work.transaction_queue("late", SHORT)
        queue.create()
        prepared = queue.prepare("late")
        consumer = at_work.account.queue("late")
        while consumer.status().delayed:
            assert consumer.receive(16, wait_s=5) == ()
        with pytest.raises(LateCommitError):
            queue.commit(prepared)
        assert queue.tally.late == 1
        for _ in range(3):  # past the end of the delay too
            assert consumer.receive(16, wait_s=5) == ()
