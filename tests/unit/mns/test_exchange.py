"""When a call is tried again, and what its headers and limits are."""

from __future__ import annotations

import pytest

from gantry.errors import ConfigError, GantryError, OutcomeUnknownError, RemoteProtocolError, UnreachableError
from gantry.mns import messagecalls, queuecalls, transactioncalls
from gantry.mns.errors import MessageNotExistError, ServiceError
from gantry.mns.exchange import AccountSettings, Call, HttpAnswer, Repeat, pause_before, refused, signed_headers
from gantry.mns.values import NewMessage, QueueAttributes

UNSENT, LOST = UnreachableError("no connection"), OutcomeUnknownError("no answer")
BUSY, GONE = ServiceError(503, "ServerBusy", ""), MessageNotExistError(404, "MessageNotExist", "")
ONCE = [
    messagecalls.send("q", NewMessage("a")),
    messagecalls.send_many("q", [NewMessage("a")]),
    messagecalls.change_visibility("q", "h", 1),
]
AGAIN = [
    queuecalls.create("q", QueueAttributes()),
    queuecalls.set_attributes("q", QueueAttributes()),
    queuecalls.get("q"),
    queuecalls.delete("q"),
    queuecalls.list_page("", "", 1),
    messagecalls.receive_many("q", 1),
    messagecalls.peek_many("q", 1),
    messagecalls.delete("q", "h"),
    messagecalls.delete_many("q", ["h"]),
    transactioncalls.prepare("q", "a", 1, 2),
    transactioncalls.log("q", "h", 1),
    transactioncalls.commit("q", "h", 1),
    transactioncalls.rollback("q", "h"),
    transactioncalls.confirm("q", "h"),
]


@pytest.mark.parametrize("call", ONCE, ids=lambda call: f"{call.method} {call.target}")
def test_a_call_with_an_effect_is_sent_again_only_if_it_was_not_sent(call: Call[object]) -> None:
    assert call.repeat is Repeat.UNSENT
    assert [pause_before(call, 2, error, 4) for error in (UNSENT, LOST, BUSY, GONE)] == [0.1, None, None, None]


@pytest.mark.parametrize("call", AGAIN, ids=lambda call: f"{call.method} {call.target}")
def test_a_call_that_may_be_repeated_is_after_a_lost_answer(call: Call[object]) -> None:
    assert call.repeat is Repeat.SAFE
    assert [pause_before(call, 2, error, 4) for error in (UNSENT, LOST, BUSY, GONE)] == [0.1, 0.1, 0.1, None]


def test_attempts_end_and_their_pauses_double() -> None:
    call = queuecalls.get("q")
    assert [pause_before(call, attempt, LOST, 4) for attempt in (2, 3, 4, 5)] == [0.1, 0.2, 0.4, None]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"<Error><Code>QueueNotExist</Code><Message>x</Message><RequestId>r</RequestId></Error>", "QueueNotExist"),
        (b"<Error/>", "Unknown"),
        (b"<html>Bad Gateway<br>", "Unreadable"),
        (b"", "Unreadable"),
    ],
)
def test_any_refusal_is_an_error_with_a_code(body: bytes, code: str) -> None:
    error = refused(HttpAnswer(502, {"x-mns-request-id": "r"}, body))
    assert isinstance(error, ServiceError) and (error.code, error.request_id) == (code, "r") and error.is_temporary


def test_the_servers_clock_is_known_within_bounds() -> None:
    answer = HttpAnswer(200, {"date": "Fri, 27 Nov 2026 10:00:00 GMT"}, b"", received_ms=5, elapsed_ms=250)
    at_ms = 1_795_773_600_000
    assert (answer.earliest_ms, answer.latest_ms) == (at_ms - 250, at_ms + 999)
    for odd in ({}, {"date": "yesterday"}):
        assert HttpAnswer(200, odd, b"", received_ms=5000, elapsed_ms=250).earliest_ms == 4750


def test_a_request_without_access_id_is_not_signed() -> None:
    call = queuecalls.list_page("or", "m", 7)
    headers = signed_headers(call, AccountSettings("http://127.0.0.1:9407"), 1_795_773_600_000)
    assert headers == {
        "date": "Fri, 27 Nov 2026 10:00:00 GMT", "x-mns-version": "2015-06-06", "accept-encoding": "identity",
        "content-type": "text/xml;charset=UTF-8", "x-mns-prefix": "or", "x-mns-marker": "m", "x-mns-ret-number": "7",
    }  # fmt: skip


@pytest.mark.parametrize(
    "given",
    [
        {"endpoint": "127.0.0.1:9407"}, {"endpoint": "http://a:1/path"}, {"endpoint": "http://a:1", "secret": "s"},
        {"endpoint": "http://a:1", "access_id": "i"}, {"endpoint": "http://a:1", "attempts": 0},
    ],
)  # fmt: skip
def test_wrong_settings_are_refused_at_once(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        AccountSettings(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "answer",
    [
        b"<Message><MessageBodyMD5>0</MessageBodyMD5><MessageId>1</MessageId></Message>",
        b"<Message/>",
        b"nothing",
    ],
)
def test_an_answer_that_does_not_fit_the_message_is_refused(answer: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        messagecalls.send("q", NewMessage("a")).read(HttpAnswer(201, {}, answer))


@pytest.mark.parametrize(
    "made",
    [
        lambda: queuecalls.get("-q"),
        lambda: queuecalls.get("q" * 121),
        lambda: queuecalls.get("q/messages"),
        lambda: queuecalls.create("q", QueueAttributes(delay_s=-1)),
        lambda: queuecalls.list_page("a\r\nx-evil: 1", "", 1),
        lambda: queuecalls.list_page("", "", 1001),
        lambda: messagecalls.send("q", NewMessage("a", priority=17)),
        lambda: messagecalls.send("q", NewMessage("a", delay_s=-1)),
        lambda: messagecalls.send_many("q", []),
        lambda: messagecalls.send_many("q", [NewMessage("a")] * 17),
        lambda: messagecalls.receive_many("q", 17),
        lambda: messagecalls.receive_many("q", 1, 31),
        lambda: messagecalls.delete("q", ""),
        lambda: messagecalls.delete("q", "a b"),
        lambda: messagecalls.delete("q", "a" * 513),
        lambda: messagecalls.change_visibility("q", "h", 0),
        lambda: transactioncalls.log("q" * 101, "h", 1),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_sent(made: object) -> None:
    with pytest.raises(ValueError, match=r"expected|at most"):
        made()  # type: ignore[operator]


def test_a_number_that_is_none_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="DelaySeconds"):
        queuecalls.get("q").read(HttpAnswer(200, {}, b"<Queue><DelaySeconds>-1</DelaySeconds></Queue>"))


def test_an_error_of_a_proxy_in_between_is_no_empty_queue() -> None:
    with pytest.raises(GantryError):
        messagecalls.receive_many("q", 1).read(HttpAnswer(404, {}, b"<html>not here</html>"))
