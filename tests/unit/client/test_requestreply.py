"""Who waits for which reply, and what makes a message a request or a reply."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gantry.client.producer import Message, Producer
from gantry.client.requestreply import (
    DEFAULT_TTL_S,
    Waiting,
    answer_properties,
    answer_to,
    request_properties,
    ttl_s,
)
from gantry.errors import OutcomeUnknownError, RefusedError
from gantry.leaves import properties
from gantry.leaves.frames import Command
from gantry.model.message import StoredMessage
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply
from gantry.wire.compression import Compression, compress
from testkit.fake_connection import FakeConnection
from testkit.patience import HANG_S
from testkit.requests import request
from testkit.scripted import ScriptedCluster, refuse

PUSH = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
SEND_REPLY = RequestCode.SEND_REPLY_MESSAGE_V2


def pushed(correlation_id: str, body: bytes = b"yes", sys_flag: int = 0, **without: str) -> Command:
    fields: dict[str, str | int] = {
        "producerGroup": "g",
        "topic": "c_REPLY_TOPIC",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": 0,
        "sysFlag": sys_flag,
        "bornTimestamp": 1,
        "flag": 5,
        "properties": properties.pack({"CORRELATION_ID": correlation_id, "TAGS": "done", "KEYS": "a b"}).decode(),
        "bornHost": "10.0.0.5:17",
        "storeHost": "10.0.0.9:10911",
        "storeTimestamp": 2,
    }
    return request(PUSH, body, **{name: value for name, value in fields.items() if name not in without})


def stored(pairs: dict[str, str]) -> StoredMessage:
    return StoredMessage("T", b"?", pairs, 0, 0, 0, 9, 0, 0, 0, "h:1", 0, "h:1", 0, 0, "0A", "broker-b")


async def test_a_reply_ends_the_wait_of_its_request_only() -> None:
    async with asyncio.timeout(HANG_S):
        waiting, connection = Waiting(), FakeConnection()
        one, two = waiting.expect("1"), waiting.expect("2")
        asked: Any = connection
        assert waiting.serve(asked, pushed("2"))
        (answer,) = connection.take()
        assert answer.code == ResponseCode.SUCCESS
        found = await two
        assert (found.body, found.tags, found.keys, found.flag, found.born_host) == (
            b"yes", "done", ("a", "b"), 5, "10.0.0.5:17",
        )
        assert not one.done()
        one.cancel()
        await asyncio.sleep(0)
        assert not len(waiting)


async def test_a_reply_that_nobody_waits_for_is_refused() -> None:
    waiting, connection = Waiting(), FakeConnection()
    asked: Any = connection
    for command in (pushed("1"), pushed("1", producerGroup="")):
        assert waiting.serve(asked, command)
        (answer,) = connection.take()
        assert answer.code == ResponseCode.SYSTEM_ERROR
    assert not waiting.serve(asked, request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED))


@pytest.mark.parametrize("kind", Compression)
async def test_a_compressed_reply_is_read(kind: Compression) -> None:
    async with asyncio.timeout(HANG_S):
        waiting, asked = Waiting(), FakeConnection()
        future = waiting.expect("1")
        waiting.serve(asked, pushed("1", compress(kind, b"x" * 5000), kind.value))  # type: ignore[arg-type]
        assert (await future).body == b"x" * 5000


def test_what_makes_a_request_and_its_reply() -> None:
    asked = request_properties("c-1", "me", 1.5)
    assert asked == {"CORRELATION_ID": "c-1", "REPLY_TO_CLIENT": "me", "TTL": "1500"}
    message = stored({**asked, "CLUSTER": "C", "shop": "7"})
    assert answer_to(message, b"yes", "done", "k").topic == "C_REPLY_TOPIC"
    assert answer_properties(message) == {**asked, "MSG_TYPE": "reply"}
    assert ttl_s(message) == 1.5
    assert ttl_s(stored({"TTL": "soon"})) == DEFAULT_TTL_S
    for missing in ("CLUSTER", "CORRELATION_ID", "REPLY_TO_CLIENT"):
        pairs = {**asked, "CLUSTER": "C"}
        del pairs[missing]
        with pytest.raises(ValueError, match="is not a request"):
            answer_to(stored(pairs), b"", "", "")


async def test_a_reply_goes_to_the_broker_of_its_request_first_and_to_each_other_one_once() -> None:
    async with asyncio.timeout(HANG_S):
        message = stored({**request_properties("c-1", "me", 30.0), "CLUSTER": "C"})
        async with ScriptedCluster(groups=3) as cluster, Producer("r", nameserver=cluster.nameserver) as producer:
            cluster.answers["broker-b", SEND_REPLY] = refuse(1, "not connected to this broker")
            for name in ("broker-a", "broker-c"):
                cluster.answers[name, SEND_REPLY] = handed_on
            await producer.reply(message, b"yes")
            asked = [name for name, command in cluster.received if command.code == SEND_REPLY]
            assert asked[0] == "broker-b"
            assert len(asked) == 2
            for name in ("broker-a", "broker-c"):
                cluster.answers[name, SEND_REPLY] = refuse(1, "nor to this one")
            with pytest.raises(RefusedError, match="not connected"):
                await producer.reply(message, b"yes")
            asked = [name for name, command in cluster.received if command.code == SEND_REPLY]
            assert len(asked) == 5


def handed_on(command: Command) -> Command:
    return reply(command, ext={"msgId": "0", "queueId": "0", "queueOffset": "0"})


async def test_a_request_without_a_reply_ends_when_its_time_is_up() -> None:
    async with asyncio.timeout(HANG_S):
        async with ScriptedCluster() as cluster, Producer("a", nameserver=cluster.nameserver) as producer:
            with pytest.raises(OutcomeUnknownError, match="no reply within 3 s"):
                await producer.request(Message("T", b"?"), timeout_s=3.0)
            assert not len(producer._waiting)
