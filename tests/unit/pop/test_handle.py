"""Receipt handles and the strings of a pop's answer, byte for byte as RocketMQ's clients make and read them."""

import pytest

from gantry.pop import handle
from gantry.pop.handle import NORMAL, RETRY_V1, RETRY_V2, ReceiptHandle


def test_a_handle_is_eight_words() -> None:
    made = ReceiptHandle(100, 1_700_000_000_123, 60_000, 3, RETRY_V1, "broker-a", 2, 107)
    text = "100 1700000000123 60000 3 1 broker-a 2 107"
    assert handle.encode(made) == text
    assert handle.decode(text) == made


@pytest.mark.parametrize(
    "text",
    [
        "",
        "100 1700000000123 60000 3 1 broker-a 2",
        "100 1700000000123 60000 3 1 broker-a 2  107",
        "100 1700000000123 60000 3 3 broker-a 2 107",
        "-1 1700000000123 60000 3 1 broker-a 2 107",
        "100 1700000000123 60000 3 1  2 107",
        "100 17000000001x3 60000 3 1 broker-a 2 107",
        "99999999999999999999 1 60000 3 1 broker-a 2 107",
        "1 " * 5000,
        "\0 \x01 1 1 1 b 1 1",
    ],
)
def test_what_is_no_handle_is_none(text: str) -> None:
    assert handle.decode(text) is None


@pytest.mark.parametrize("more", [" 8137945", " ", " x", " 1 2 3"])
def test_what_follows_the_eight_words_is_ignored(more: str) -> None:
    """Apache's proxy adds the log offset; RocketMQ's broker reads the first eight words."""
    text = "100 1700000000123 60000 3 1 broker-a 2 107"
    assert handle.decode(text + more) == handle.decode(text) is not None


def test_a_flag_names_the_retry_topic() -> None:
    assert handle.real_topic("orders", "g_1", NORMAL) == "orders"
    assert handle.real_topic("orders", "g_1", RETRY_V1) == "%RETRY%g_1_orders"
    assert handle.real_topic("orders", "g_1", RETRY_V2) == "%RETRY%g_1+orders"
    for flag in (NORMAL, RETRY_V1, RETRY_V2):
        assert handle.normal_topic(handle.real_topic("orders", "g_1", flag), "g_1") == ("orders", flag)
    assert handle.normal_topic("%RETRY%g_2_orders", "g_1") == ("%RETRY%g_2_orders", NORMAL)
