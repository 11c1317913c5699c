"""Hooks see every send and every call, before and after, and may carry something along."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import replace

import pytest

from gantry.client.consumer import ReceivedMessage
from gantry.client.hooks import Sending
from gantry.client.producer import Message, Producer, ProducerSettings
from gantry.errors import RefusedError
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.onequeue import FIRST, OneQueue, member
from testkit.patience import HANG_S
from testkit.scripted import ScriptedCluster, refuse
from testkit.turning import until

SEND = RequestCode.SEND_MESSAGE_V2
TRACE: ContextVar[str] = ContextVar("trace", default="none")


class Recorder:
    """Both kinds of hook: keeps a line for everything."""

    def __init__(self, name: str = "") -> None:
        self.lines: list[str] = []
        self._name = name

    def sending(self, sending: Sending) -> AbstractContextManager[object]:
        sending.messages = [replace(message, properties={"trace": "42"}) for message in sending.messages]
        return self._around(f"{self._name}send {len(sending.messages)}", sending)

    def consuming(self, group: str, message: ReceivedMessage) -> AbstractContextManager[object]:
        return self._around(f"{group} {message.body.decode()} {message.attempt}", None)

    @contextmanager
    def _around(self, what: str, sending: Sending | None) -> Iterator[None]:
        self.lines.append(what)
        token = TRACE.set(what)
        try:
            yield
        except BaseException as error:
            self.lines.append(f"{what}: {type(error).__name__}")
            raise
        finally:
            TRACE.reset(token)
        self.lines.append(f"{what}: {sending.result.queue_offset if sending and sending.result else 'done'}")


async def test_a_send_goes_through_its_hooks_and_takes_their_properties_along() -> None:
    first, second = Recorder("1 "), Recorder("2 ")
    async with asyncio.timeout(HANG_S), ScriptedCluster() as cluster:
        settings = ProducerSettings(hooks=(first, second))
        async with Producer("p", nameserver=cluster.nameserver, settings=settings) as producer:
            await producer.send(Message("T", b"x"))
            await producer.send_batch([Message("T", b"a"), Message("T", b"b")])
        (sent,) = cluster.asked("broker-a", SEND)
        assert "trace\x0142\x02" in sent.ext["i"]
    assert first.lines == ["1 send 1", "1 send 1: 7", "1 send 2", "1 send 2: 7"]
    assert second.lines == ["2 send 1", "2 send 1: 7", "2 send 2", "2 send 2: 7"]


async def test_a_send_that_fails_is_told_to_its_hooks() -> None:
    recorder = Recorder()
    async with asyncio.timeout(HANG_S), ScriptedCluster() as cluster:
        cluster.answers["broker-a", SEND] = refuse(ResponseCode.MESSAGE_ILLEGAL)
        settings = ProducerSettings(hooks=(recorder,))
        async with Producer("p", nameserver=cluster.nameserver, settings=settings) as producer:
            with pytest.raises(RefusedError):
                await producer.send(Message("T", b"x"))
    assert recorder.lines == ["send 1", "send 1: RefusedError"]


async def test_a_listener_runs_inside_its_hooks() -> None:
    recorder, seen = Recorder(), []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(TRACE.get())
        if len(seen) == 1:
            raise RuntimeError("not yet")

    settings = replace(FIRST, hooks=(recorder,), retry_delays_s=(0.01,), concurrency=1)
    async with asyncio.timeout(HANG_S), OneQueue(count=1) as cluster:
        cluster.answers["broker-a", RequestCode.CONSUMER_SEND_MSG_BACK] = refuse(ResponseCode.SYSTEM_BUSY)
        async with member(cluster, settings, listener=listener):
            await until(lambda: len(recorder.lines) == 4)
    assert recorder.lines == ["g 0 1", "g 0 1: RuntimeError", "g 0 2", "g 0 2: done"]
    assert seen == ["g 0 1", "g 0 2"]
    assert TRACE.get() == "none"


async def test_nothing_is_sent_when_a_hook_cannot_begin() -> None:
    class Broken:
        def sending(self, sending: Sending) -> AbstractContextManager[object]:
            raise LookupError("no tracer")

    recorder = Recorder()
    async with asyncio.timeout(HANG_S), ScriptedCluster() as cluster:
        settings = ProducerSettings(hooks=(recorder, Broken()))
        async with Producer("p", nameserver=cluster.nameserver, settings=settings) as producer:
            with pytest.raises(LookupError):
                await producer.send(Message("T", b"x"))
        assert cluster.asked("broker-a", SEND) == []
    assert recorder.lines == ["send 1", "send 1: LookupError"]
