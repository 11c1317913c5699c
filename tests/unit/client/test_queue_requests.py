"""Acknowledgements of HTTP queues: which messages go together, and what the answer says of each."""

from __future__ import annotations

import base64
import json

from gantry.client.popped import Receipt
from gantry.client.requests import queue_requests
from gantry.leaves import frames

FIRST, SECOND = Receipt(10, 5, 60_000, 1, 0, "a", 7, 10), Receipt(10, 5, 60_000, 1, 0, "a", 7, 13)
OTHER = Receipt(0, 6, 60_000, 1, 1, "a", 7, 0)


def answered(receipts: list[Receipt], stale: list[list[int]] | None) -> list[bool]:
    question = queue_requests.ack_each("g", "Tea", receipts)
    body = b"" if stale is None else json.dumps({"stale": stale}).encode()
    return question.read(frames.Command(0, body=body))


def test_messages_of_one_lease_are_one_entry() -> None:
    question = queue_requests.ack_each("g", "Tea", [FIRST, OTHER, SECOND])
    lease, other = json.loads(question.command.body)["acks"]
    assert (lease["so"], lease["q"], base64.b64decode(lease["b"])) == (10, 7, b"\x09")
    assert (other["so"], other["r"], base64.b64decode(other["b"])) == (0, "1", b"\x01")


def test_each_message_has_its_own_verdict() -> None:
    assert answered([FIRST, OTHER, SECOND], None) == [True, True, True]
    assert answered([FIRST, OTHER, SECOND], [[0, 13]]) == [True, True, False]
    assert answered([FIRST, OTHER, SECOND], [[0, 10], [1, 0]]) == [False, False, True]


def test_of_two_equal_receipts_the_second_comes_too_late() -> None:
    assert answered([FIRST, SECOND, FIRST], None) == [True, True, False]
    assert answered([FIRST, FIRST], [[0, 10]]) == [False, False]


def test_an_answer_about_something_else_changes_nothing() -> None:
    for stale in ([[7, 10]], [[0, 99]], [[0]], [["0", "10"]], [[-1, 10]]):
        assert answered([FIRST], stale) == [True]  # type: ignore[arg-type]
