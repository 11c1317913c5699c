"""Which times and attributes of a transaction queue are refused, and what is in an operation log."""

from __future__ import annotations

import base64
import re

import pytest

from gantry.errors import ConfigError
from gantry.mns.transactionrules import (
    TransactionTimes,
    ends_ms_of_log,
    handle_in,
    log_queue,
    log_text,
    unsafe,
)
from gantry.mns.values import QueueAttributes

TIMES = TransactionTimes(timeout_s=600, check_within_s=3600)
LOG = QueueAttributes(life_s=345_600, delay_s=0)


def test_the_defaults_are_the_vendors_and_safe() -> None:
    times = TransactionTimes()
    assert times.attributes == QueueAttributes(delay_s=172_800, life_s=169_200) and times.timeout_s == 600
    assert not unsafe("orders", times, times.attributes, LOG)


@pytest.mark.parametrize(
    ("queue", "log", "reason"),
    [
        (QueueAttributes(delay_s=4261, life_s=4261), LOG, "delay 4261 s must exceed retention 4261 s"),
        (QueueAttributes(delay_s=0, life_s=5000), LOG, "or messages nobody commits become visible"),
        (QueueAttributes(delay_s=9000, life_s=4260), LOG, "retention 4260 s must exceed 60 s \\+ timeout 600 s"),
        (
            QueueAttributes(delay_s=9000, life_s=4261),
            QueueAttributes(life_s=4200),
            "retention of orders-operation-log-queue, 4200 s, must exceed timeout \\+ check time, 4200 s",
        ),
        (QueueAttributes(), LOG, "delay 0 s .*; retention 0 s"),
    ],
)
def test_attributes_that_would_lose_or_show_messages_are_refused(
    queue: QueueAttributes, log: QueueAttributes, reason: str
) -> None:
    assert re.search(reason, unsafe("orders", TIMES, queue, log))


def test_one_second_more_is_safe() -> None:
    assert not unsafe("orders", TIMES, QueueAttributes(delay_s=4262, life_s=4261), QueueAttributes(life_s=4201))


@pytest.mark.parametrize("given", [{"timeout_s": 0}, {"timeout_s": 604_801}, {"check_within_s": 0}])
def test_times_out_of_their_bounds_are_refused(given: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="expected"):
        TransactionTimes(**given)


def test_an_operation_log_has_the_handle_as_base64_as_the_vendors_library_writes_it() -> None:
    assert log_text("handle-1/+=") == base64.b64encode(b"handle-1/+=").decode()
    assert handle_in(log_text("handle-1/+=")) == "handle-1/+="
    assert log_queue("orders") == "orders-operation-log-queue"


@pytest.mark.parametrize("text", ["", "handle-1/+=", "\u8336", base64.b64encode(b"a b").decode(), "AAAA"])
def test_a_log_without_a_handle_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no receipt handle"):
        handle_in(text)


def test_a_checker_takes_the_life_for_a_minute_shorter_than_it_is() -> None:
    assert ends_ms_of_log(1_000_000, 169_200) == 1_000_000 - 60_000 + 169_200_000
