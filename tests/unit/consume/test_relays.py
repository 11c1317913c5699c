"""Questions for clients, and what becomes of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gantry.consume.relays import RelayHandlers
from gantry.errors import OutcomeUnknownError, UnreachableError
from gantry.leaves import records
from gantry.leaves.frames import Command
from gantry.metadata.clients import ClientLimits, Clients, Consumption, GroupClient
from gantry.model.route import MessageQueue
from gantry.wire import bodies
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply
from testkit.fake_connection import FakeConnection
from testkit.pullplay import PullPlay
from testkit.requests import answered, request

PLAY = PullPlay()


class Client(FakeConnection):
    """A consumer that answers, or fails."""

    def __init__(self, error: Exception | None = None, body: bytes = b"{}") -> None:
        super().__init__()
        self.asked: list[Command] = []
        self._error = error
        self._body = body

    def invoke(self, command: Command, timeout_s: float) -> asyncio.Future[Command]:
        self.asked.append(command)
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        if self._error is None:
            future.set_result(reply(command, 0, None, {"a": "b"}, self._body))
        else:
            future.set_exception(self._error)
        return future


def ask(client: Any, version: int = 479, **fields: str) -> Command:
    clients = Clients(ClientLimits())
    consumption = Consumption("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")
    clients.register_consumer(client, "g", GroupClient("c", 0, version, 0.0), consumption, [])
    asked = {"consumerGroup": "g", "clientId": "c", "jstackEnable": "true"} | fields
    tool: Any = FakeConnection()
    handlers = RelayHandlers(clients, PLAY.topics, PLAY.store, "b")
    handler = handlers.consume_directly if "msgId" in asked else handlers.running_info
    code = RequestCode.CONSUME_MESSAGE_DIRECTLY if "msgId" in asked else RequestCode.GET_CONSUMER_RUNNING_INFO
    return answered(handler(tool, request(code, **asked)))


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


def test_a_message_to_be_consumed_at_once_goes_along_as_it_is_stored() -> None:
    (log_offset,) = PLAY.send("directly")
    message_id = records.offset_message_id(bytes(8), log_offset)
    client = Client()
    assert ask(client, msgId=message_id).code == 0
    [asked] = client.asked
    assert asked.code == RequestCode.CONSUME_MESSAGE_DIRECTLY
    assert records.view(asked.body, 0, len(asked.body)).body == b"directly"
    assert (asked.ext["brokerName"], asked.ext["topicSysFlag"], asked.ext["groupSysFlag"]) == ("b", "0", "0")


@pytest.mark.parametrize("message_id", ["nonsense", records.offset_message_id(bytes(8), 1)])
def test_a_message_that_is_not_there_is_not_asked_about(message_id: str) -> None:
    client = Client()
    assert ask(client, msgId=message_id).code == ResponseCode.SYSTEM_ERROR and client.asked == []


def test_where_members_are_is_put_together_and_who_cannot_say_is_left_out() -> None:
    clients = Clients(ClientLimits())
    queue = MessageQueue("T", "b", 1).to_json()
    table = b'{"messageQueueTable":' + bodies.object_keyed([(queue, 7)]) + b"}"
    consumption = Consumption("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")
    members: dict[str, Any] = {
        "says": Client(body=table),
        "silent": Client(OutcomeUnknownError("no answer")),
        "speaks otherwise": Client(body=b"[]"),
        "says too much": Client(body=table + b" " * (64 << 10)),
    }
    for name, client in members.items():
        clients.register_consumer(client, "g", GroupClient(name, 0, 479, 0.0), consumption, [])
    handlers = RelayHandlers(clients, PLAY.topics, PLAY.store, "b")

    def status(**fields: str) -> Command:
        asked = request(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, **fields)
        tool: Any = FakeConnection()
        return answered(handlers.status(tool, asked))

    found = bodies.loads_object(status(group="g", topic="T").body)["consumerTable"]
    assert isinstance(found, dict) and list(found) == ["says"]
    ((key, offset),) = found["says"].items()
    assert (bodies.loads(key.encode()), offset) == (queue, 7)
    status(group="g", topic="T", clientAddr="says")
    assert [len(client.asked) for client in members.values()] == [2, 1, 1, 1]
    assert status(group="other", topic="T").code == ResponseCode.CONSUMER_NOT_ONLINE
