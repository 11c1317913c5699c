"""Recall handles: RocketMQ's text, and nothing else is one."""

from __future__ import annotations

import base64

import pytest

from gantry.schedule import handles
from gantry.schedule.handles import Handle


def test_a_handle_is_rocketmqs_text() -> None:
    handle = Handle("orders", "broker-a", 1_700_000_000_123, "AC110001")
    text = handles.encode(handle)
    assert base64.urlsafe_b64decode(text) == b"v1 orders broker-a 1700000000123 AC110001"
    assert handles.decode(text) == handle


@pytest.mark.parametrize(
    "inside",
    [b"v2 t b 5 k", b"v1 t b 5", b"v1 t b 5 k more", b"v1 t b soon k", b"v1  b 5 k", b"\xff\xfe", b""],
)
def test_what_says_something_else_is_none(inside: bytes) -> None:
    assert handles.decode(base64.urlsafe_b64encode(inside).decode()) is None


@pytest.mark.parametrize("text", ["", "%%%", "djEg", "ü" * 8, "A" * 5000])
def test_what_is_not_base64_is_none(text: str) -> None:
    assert handles.decode(text) is None


def test_levels_cancels_and_redeliveries_have_no_handle() -> None:
    timed = b"UNIQ_KEY\x01k\x02TIMER_OUT_MS\x0117\x02REAL_TOPIC\x01orders\x02REAL_QID\x010\x02"
    assert handles.decode(handles.of(timed, "b")) == Handle("orders", "b", 17, "k")
    assert handles.of(timed.replace(b"TIMER_OUT_MS", b"DELAY"), "b") == ""
    assert handles.of(timed + b"TIMER_DEL_UNIQKEY\x01x\x02", "b") == ""
    assert handles.of(timed.replace(b"orders", b"%RETRY%g"), "b") == ""
    assert handles.of(timed.replace(b"UNIQ_KEY", b"OTHER"), "b") == ""
