"""What is too large is refused before its handler sees it."""

from __future__ import annotations

import json

import pytest

from gantry.broker.requests.bounds import FIELDS_CHARS_MAX, why_too_large
from gantry.model.subscription import EXPRESSION_CHARS_MAX
from gantry.wire.codes import RequestCode
from testkit.requests import request


@pytest.mark.parametrize(
    ("code", "limit"),
    [
        (RequestCode.GET_BROKER_CONFIG, 16 << 10),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, 16 << 10),
        (RequestCode.HEART_BEAT, 512 << 10),
        (RequestCode.LOCK_BATCH_MQ, 512 << 10),
        (RequestCode.END_BATCH, 256 << 10),
        (RequestCode.CHECK_CLIENT_CONFIG, 128 << 10),
    ],
)
def test_a_body_has_the_limit_of_its_code(code: RequestCode, limit: int) -> None:
    assert why_too_large(request(code, b"x" * limit)) is None
    assert why_too_large(request(code, b"x" * (limit + 1))) == (
        f"the body has {limit + 1} bytes, {limit} are allowed; ask for less at a time"
    )


@pytest.mark.parametrize("is_ascii", [True, False])
def test_the_longest_expression_can_be_asked_about(is_ascii: bool) -> None:
    said = {"expressionType": "SQL92", "subString": "\u20ac" * EXPRESSION_CHARS_MAX, "topic": "T"}
    body = json.dumps({"clientId": "c", "group": "g", "subscriptionData": said}, ensure_ascii=is_ascii).encode()
    assert why_too_large(request(RequestCode.CHECK_CLIENT_CONFIG, body)) is None


def test_messages_have_a_limit_of_their_own() -> None:
    assert why_too_large(request(RequestCode.SEND_REPLY_MESSAGE, b"x" * (4 << 20))) is None


def test_header_fields_are_bounded_together() -> None:
    assert why_too_large(request(RequestCode.QUERY_MESSAGE, key="x" * (FIELDS_CHARS_MAX - 3))) is None
    why = why_too_large(request(RequestCode.QUERY_MESSAGE, topic="x" * FIELDS_CHARS_MAX, key="x"))
    assert why == f"the header fields have {FIELDS_CHARS_MAX + 9} characters, {FIELDS_CHARS_MAX} are allowed"
