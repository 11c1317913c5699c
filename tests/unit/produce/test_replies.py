"""Answers to requests: handed on to the one that asked, and its sender told how that went."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gantry.errors import OutcomeUnknownError
from gantry.leaves import properties
from gantry.leaves.frames import Command
from gantry.metadata.clients import ClientLimits, Clients, GroupClient
from gantry.produce.replies import ReplyHandlers
from gantry.wire import headers
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply
from gantry.wire.headers import HeaderError
from testkit.fake_connection import FakeConnection
from testkit.requests import answered, request
from testkit.simclock import SimClock

ASKER = "10.0.0.5@1#2"
NAMES = "producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag bornTimestamp flag"
VALUES = ("g", "c_REPLY_TOPIC", "TBW102", "4", "0", "0", "17", "5")


class Asker(FakeConnection):
    """A connection whose peer answers what it is asked."""

    def __init__(self, code: int = 0, silent: bool = False) -> None:
        super().__init__()
        self.asked: list[Command] = []
        self._code = code
        self._silent = silent

    def invoke(self, command: Command, timeout_s: float) -> asyncio.Future[Command]:
        self.asked.append(command)
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        if self._silent:
            future.set_exception(OutcomeUnknownError("no answer within 3 s"))
        else:
            future.set_result(reply(command, self._code, "no" if self._code else None))
        return future


class Play:
    """Handlers, and perhaps somebody who asked."""

    def __init__(self, asker: Asker | None) -> None:
        self.clients = Clients(ClientLimits())
        if asker is not None:
            self.clients.register_producer(asker, "askers", GroupClient(ASKER, 0, 479, 0.0))  # type: ignore[arg-type]
        self.handlers = ReplyHandlers(self.clients, SimClock(), bytes([10, 0, 0, 9, 0, 0, 0x2A, 0x9F]))

    def send(self, command: Command) -> Command:
        connection: Any = FakeConnection()
        return answered(self.handlers.send_reply(connection, command))


def pairs(**more: str) -> str:
    found = {"MSG_TYPE": "reply", "REPLY_TO_CLIENT": ASKER, "CORRELATION_ID": "c-1", "TTL": "3000"} | more
    return properties.pack({name: value for name, value in found.items() if value}).decode()


def short(text: str) -> Command:
    fields = dict(zip("abcdefgh", VALUES, strict=True)) | {"i": text}
    return request(RequestCode.SEND_REPLY_MESSAGE_V2, b"yes", **fields)


def long(text: str) -> Command:
    fields = dict(zip(NAMES.split(), VALUES, strict=True)) | {"properties": text}
    return request(RequestCode.SEND_REPLY_MESSAGE, b"yes", **fields)


@pytest.mark.parametrize("make", [short, long])
def test_an_answer_reaches_the_one_that_asked(make: Any) -> None:
    asker = Asker()
    play = Play(asker)
    answer = play.send(make(pairs()))
    assert (answer.code, answer.ext["msgId"]) == (ResponseCode.SUCCESS, "0")
    (pushed,) = asker.asked
    assert (pushed.code, pushed.body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"yes")
    assert pushed.ext["bornHost"] == "10.0.0.1:4711"
    assert pushed.ext["storeHost"] == "10.0.0.9:10911"
    assert (pushed.ext["bornTimestamp"], pushed.ext["flag"], pushed.ext["unitMode"]) == ("17", "5", "false")
    carried = properties.parse(pushed.ext["properties"].encode())
    assert (carried["CORRELATION_ID"], carried["TTL"]) == ("c-1", "3000")
    assert carried["PUSH_REPLY_TIME"] == pushed.ext["storeTimestamp"]
    assert play.handlers.counts.delivered == 1


def test_an_answer_for_somebody_who_is_gone_is_refused() -> None:
    asker = Asker()
    play = Play(asker)
    play.clients.connection_closed(asker)  # type: ignore[arg-type]
    answer = play.send(short(pairs()))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert ASKER in (answer.remark or "")
    assert (asker.asked, play.handlers.counts.unclaimed) == ([], 1)


@pytest.mark.parametrize("asker", [Asker(code=1), Asker(silent=True)], ids=["says no", "says nothing"])
def test_an_answer_that_was_not_taken_is_told_to_its_sender(asker: Asker) -> None:
    play = Play(asker)
    answer = play.send(short(pairs()))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "fail" in (answer.remark or "")
    assert play.handlers.counts.failed == 1


@pytest.mark.parametrize("missing", ["REPLY_TO_CLIENT", "CORRELATION_ID"])
def test_an_answer_to_nothing_is_refused(missing: str) -> None:
    answer = Play(Asker()).send(short(pairs(**{missing: ""})))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert missing in (answer.remark or "")


def test_a_header_that_lacks_a_field_is_named() -> None:
    with pytest.raises(HeaderError, match="defaultTopicQueueNums"):
        Play(None).send(request(RequestCode.SEND_REPLY_MESSAGE, producerGroup="g", topic="t", defaultTopic="T"))


def test_a_client_that_came_back_is_reached_where_it_is_now() -> None:
    old, new = Asker(), Asker()
    play = Play(old)
    play.clients.register_producer(new, "askers", GroupClient(ASKER, 0, 479, 1.0))  # type: ignore[arg-type]
    play.clients.connection_closed(old)  # type: ignore[arg-type]
    assert play.send(short(pairs())).code == ResponseCode.SUCCESS
    assert len(new.asked) == 1
    assert set(headers.REQUESTS) >= {RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}
