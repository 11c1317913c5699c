"""Questions for clients, and what becomes of them."""

from __future__ import annotations

import asyncio
from typing import Any

from gantry.consume.relays import RelayHandlers
from gantry.errors import OutcomeUnknownError, UnreachableError
from gantry.leaves.frames import Command
from gantry.metadata.clients import ClientLimits, Clients, Consumption, Member
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply
from testkit.fake_connection import FakeConnection
from testkit.requests import request


class Client(FakeConnection):
    """A consumer that answers, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.asked: list[Command] = []
        self._error = error

    def invoke(self, command: Command, timeout_s: float) -> asyncio.Future[Command]:
        self.asked.append(command)
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        if self._error is None:
            future.set_result(reply(command, 0, None, {"a": "b"}, b"{}"))
        else:
            future.set_exception(self._error)
        return future


def ask(client: Any, version: int = 479, **fields: str) -> Command:
    clients = Clients(ClientLimits())
    consumption = Consumption("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")
    clients.register_consumer(client, "g", Member("c", 0, version, 0.0), consumption, [])
    asked = {"consumerGroup": "g", "clientId": "c", "jstackEnable": "true"} | fields
    tool: Any = FakeConnection()
    return asyncio.run(
        RelayHandlers(clients).running_info(tool, request(RequestCode.GET_CONSUMER_RUNNING_INFO, **asked))
    )


def test_the_answer_of_the_client_goes_back_as_it_is() -> None:
    client = Client()
    answer = ask(client)
    assert (answer.code, answer.ext, answer.body) == (0, {"a": "b"}, b"{}")
    [asked] = client.asked
    assert (asked.code, asked.ext["jstackEnable"]) == (RequestCode.GET_CONSUMER_RUNNING_INFO, "true")


def test_a_client_that_is_not_there_or_too_old_is_not_asked() -> None:
    client = Client()
    assert ask(client, clientId="other").code == ResponseCode.SYSTEM_ERROR
    assert ask(client, consumerGroup="other").code == ResponseCode.SYSTEM_ERROR
    assert ask(client, version=61).code == ResponseCode.SYSTEM_ERROR
    assert client.asked == []


def test_silence_and_a_connection_that_went_are_told_apart() -> None:
    assert ask(Client(OutcomeUnknownError("no answer"))).code == ResponseCode.CONSUME_MSG_TIMEOUT
    assert ask(Client(UnreachableError("closed"))).code == ResponseCode.SYSTEM_ERROR
