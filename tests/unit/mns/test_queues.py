"""Every call of a queue on both shells, against a stand-in of the server; and what a bad connection does to it."""

from __future__ import annotations

import ast
import asyncio
import re
import socket
import threading
from collections.abc import Iterator

import pytest

from gantry.errors import OutcomeUnknownError, RemoteProtocolError, UnreachableError
from gantry.mns import exchange, httpxcalls
from gantry.mns.account import Account
from gantry.mns.errors import (
    AccessError,
    MessageNotExistError,
    PartialDeleteError,
    PartialSendError,
    QueueAlreadyExistError,
    QueueNotExistError,
    ReceiptHandleError,
    ServiceError,
)
from gantry.mns.exchange import AccountSettings
from gantry.mns.values import NewMessage, QueueAttributes, StoredReceipt
from testkit.mnsshells import SHELLS, Shell, shell
from testkit.mnsstandin import START_MS, Standin, served
from testkit.sources import SOURCE


@pytest.fixture
def standin() -> Standin:
    return Standin()


@pytest.fixture(params=SHELLS)
def at_work(request: pytest.FixtureRequest, standin: Standin) -> Iterator[Shell]:
    with served(standin) as endpoint, shell(request.param, endpoint) as made:
        yield made


def test_a_queue_is_made_described_changed_listed_and_deleted(at_work: Shell) -> None:
    queue = at_work.account.queue("orders")
    attributes = QueueAttributes(1, 2048, 60, 5, 3, logging=True)
    assert [queue.create(attributes), queue.create(attributes)] == [True, False]
    with pytest.raises(QueueAlreadyExistError):
        queue.create()
    assert queue.status().attributes == attributes
    queue.set_attributes(QueueAttributes(visibility_s=9))
    found = queue.status()
    assert (found.name, found.attributes.visibility_s, found.attributes.life_s) == ("orders", 9, 60)
    assert found.created_s == START_MS // 1000
    queue.delete_queue()
    queue.delete_queue()
    with pytest.raises(QueueNotExistError, match="request 5D3B4B5C1DF29E3E04BE31B2"):
        queue.status()


def test_all_queues_are_listed_page_by_page(at_work: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gantry.mns.account.PAGE", 2)
    monkeypatch.setattr("gantry.mns.blocking.PAGE", 2)
    for name in ("a1", "a2", "b", "a3", "a4", "a5"):
        at_work.account.queue(name).create()
    assert list(at_work.account.queue_names("a")) == ["a1", "a2", "a3", "a4", "a5"]
    assert list(at_work.account.queue_names("nothing")) == []


def test_a_message_is_sent_peeked_received_kept_and_deleted(at_work: Shell, standin: Standin) -> None:
    queue = at_work.account.queue("orders")
    queue.create()
    assert queue.receive() == ()
    text = "<tea> & \r\n \u8336 \U0001f375"
    stored = queue.send(text, priority=1)
    assert stored == StoredReceipt("id-1", "")
    queue.send(b"\0bytes")
    (peeked,) = queue.peek()
    assert (peeked.handle, peeked.dequeue_count, peeked.next_visible_ms) == ("", 0, 0)
    first, second = queue.receive(16)
    assert (first.text, first.priority, first.dequeue_count) == (text, 1, 1)
    assert (second.text, second.body()) == ("AGJ5dGVz", b"\0bytes")
    assert (first.enqueued_ms, first.first_dequeued_ms, first.next_visible_ms) == (
        START_MS,
        START_MS,
        START_MS + 30_000,
    )
    with pytest.raises(ValueError, match="no base64; use its text"):
        first.body()
    changed = queue.change_visibility(first.handle, 2)
    assert changed.next_visible_ms == START_MS + 2000
    with pytest.raises(MessageNotExistError):
        queue.delete(first.handle)
    queue.delete(changed.handle)
    with pytest.raises(MessageNotExistError):
        queue.delete(changed.handle)
    with pytest.raises(ReceiptHandleError):
        queue.delete("nonsense")


def test_batches_say_what_became_of_each(at_work: Shell) -> None:
    queue = at_work.account.queue("orders")
    queue.create(QueueAttributes(size_max=4))
    assert len(queue.send_many([NewMessage("a"), NewMessage("b", delay_s=7)])) == 2
    with pytest.raises(PartialSendError, match="1 of 2 messages were not stored, the first: MessageTooLong") as caught:
        queue.send_many([NewMessage("c"), NewMessage("too long")])
    assert isinstance(caught.value.results[0], StoredReceipt)
    first, second = (each.handle for each in queue.receive(2))
    with pytest.raises(PartialDeleteError) as failed:
        queue.delete_many([first, "handle-0/+="])
    assert [each.item for each in failed.value.failures] == ["handle-0/+="]
    queue.delete_many([second])


def test_a_wrong_secret_is_an_error_of_access() -> None:
    with served(Standin({"an-id": "right"})) as endpoint:
        for kind in SHELLS:
            with shell(kind, endpoint, access_id="an-id", secret="right") as right:
                right.account.queue("orders").create()
            with shell(kind, endpoint, access_id="an-id", secret="wrong") as wrong, pytest.raises(AccessError):
                wrong.account.queue("orders").status()


def test_a_send_without_an_answer_is_not_repeated(at_work: Shell, standin: Standin) -> None:
    queue = at_work.account.queue("orders")
    queue.create()
    standin.faults = lambda method, _target: "lose" if method == "POST" else None
    with pytest.raises(OutcomeUnknownError, match="POST /queues/orders/messages was sent without an answer"):
        queue.send("once")
    standin.faults = lambda _method, _target: 503
    with pytest.raises(ServiceError):
        queue.send("never")
    assert standin.visible("orders") == ["once"]


@pytest.mark.parametrize("fault", ["drop", "lose", 500])
def test_a_call_that_is_safe_is_repeated(at_work: Shell, standin: Standin, fault: str | int) -> None:
    queue = at_work.account.queue("orders")
    left = [3]

    def often(_method: str, _target: str) -> str | int | None:
        left[0] -= 1
        return fault if left[0] >= 0 else None

    standin.faults = often
    queue.create()
    assert len(standin.seen) == (4 if fault == "lose" else 1)
    left[0] = 4
    with pytest.raises((OutcomeUnknownError, ServiceError)):
        queue.status()


@pytest.mark.parametrize("kind", SHELLS)
def test_where_nobody_listens_nothing_was_sent(kind: str) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with shell(kind, endpoint, 2) as at_work, pytest.raises(UnreachableError, match="was not sent"):
            at_work.account.queue("orders").send("a")


@pytest.mark.parametrize("kind", SHELLS)
def test_an_answer_without_end_is_cut(kind: str, monkeypatch: pytest.MonkeyPatch, standin: Standin) -> None:
    monkeypatch.setattr(httpxcalls, "ANSWER_MAX", 100)
    refused = pytest.raises(RemoteProtocolError, match="more than 100 bytes")
    with served(standin) as endpoint, shell(kind, endpoint) as at_work, refused:
        at_work.account.queue("orders").status()
    assert exchange.ANSWER_MAX > 16 * 65536 * 6, "a full batch, each character an entity"


def test_connections_are_bounded_and_kept(standin: Standin) -> None:
    most, now, lock = [0], [0], threading.Lock()
    gate = threading.Barrier(2)

    def count(method: str, _target: str) -> None:
        if method == "GET":
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            gate.wait()  # both connections are at work together, again and again
            with lock:
                now[0] -= 1

    standin.faults = count

    async def many(endpoint: str) -> None:
        async with Account(AccountSettings(endpoint, connections_max=2)) as account:
            queue = account.queue("orders")
            await queue.create()
            await asyncio.gather(*(queue.receive() for _ in range(10)))

    with served(standin) as endpoint:
        asyncio.run(many(endpoint))
    assert most == [2]


RENAMED = {
    "Account": "BlockingAccount", "Queue": "BlockingQueue", "AsyncConnection": "BlockingConnection",
    "AsyncIterator": "Iterator", "TransactionQueue": "BlockingTransactionQueue",
    "QueueTransaction": "BlockingTransaction", "__aenter__": "__enter__", "__aexit__": "__exit__",
}  # fmt: skip


def _classes(module: str) -> str:
    tree = ast.parse((SOURCE / f"gantry/mns/{module}.py").read_text(encoding="utf-8"))
    return "\n".join(ast.unparse(node) for node in tree.body if isinstance(node, ast.ClassDef))


def _without_asyncio(text: str) -> str:
    text = re.sub(r"\b(async|await) ", "", text)
    text = re.sub(r"for (\w+) in (.*):\s+yield \1\n", r"yield from \2\n", text)
    text = re.sub(r"\b\w+\b", lambda word: RENAMED.get(word[0], word[0]), text)
    return ast.unparse(ast.parse(text))


@pytest.mark.parametrize(
    ("asynchronous", "blocking"), [("account", "blocking"), ("transactionqueue", "blockingtransaction")]
)
def test_the_blocking_shell_does_what_that_on_asyncio_does(asynchronous: str, blocking: str) -> None:
    wanted, found = _without_asyncio(_classes(asynchronous)), ast.unparse(ast.parse(_classes(blocking)))
    assert wanted.count("class ") == 2 and wanted.splitlines() == found.splitlines()
