"""A call that is interrupted, wherever that happens, leaves no half of a frame, and the next call works."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from gantry.client.blocking import BlockingProducer, BlockingPuller, Message
from gantry.client.blockingsinks import BlockingSinks
from gantry.client.settings import ProducerSettings
from gantry.clock import SystemClock
from gantry.errors import ClosedError
from gantry.leaves import properties
from gantry.leaves.frames import Command
from gantry.model.route import MessageQueue
from gantry.wire.codes import RequestCode
from testkit.interrupting import MOMENTS, Interrupt, Sockets
from testkit.onequeue import OneQueue

SEND = RequestCode.SEND_MESSAGE_V2
QUEUE = MessageQueue("T", "broker-a", 0)
STEPS_MAX = 200
SHORT, LONG = b"later", b"interrupted" * 10_000
BATCHED = 22 + len("UNIQ_KEY") + 1 + 32 + 1  # bytes that a batch adds to a body: head, and the unique id
WITHIN_S = 60.0
PATIENT = ProducerSettings(timeout_s=WITHIN_S, attempt_timeout_s=WITHIN_S, compress_over_bytes=None)


def interrupt() -> None:
    raise Interrupt


def beside(calls: Callable[[OneQueue], None]) -> list[Command]:
    """What a broker received while the calls ran beside it; every frame of theirs was one."""
    cluster = OneQueue(count=3)

    async def story() -> None:
        async with cluster:
            await asyncio.to_thread(calls, cluster)

    asyncio.run(asyncio.wait_for(story(), 4 * WITHIN_S))
    return [command for name, command in cluster.received if name == "broker-a"]


Call = Callable[[bytes], object]


class Still(SystemClock):
    """A clock on which ids of one producer differ by their counter only."""

    def now_ms(self) -> int:
        return 1_700_000_000_000


@contextlib.contextmanager
def sends(cluster: OneQueue) -> Iterator[Call]:
    with BlockingProducer("p", nameserver=cluster.nameserver, settings=PATIENT, clock=Still()) as producer:
        yield lambda body: producer.send(Message("T", body), queue=QUEUE)


@contextlib.contextmanager
def sends_batches(cluster: OneQueue) -> Iterator[Call]:
    with BlockingProducer("p", nameserver=cluster.nameserver, settings=PATIENT) as producer:
        yield lambda body: producer.send_batch([Message("T", body)], queue=QUEUE)


@contextlib.contextmanager
def pulls(cluster: OneQueue) -> Iterator[Call]:
    with BlockingPuller("g", nameserver=cluster.nameserver) as puller:
        yield lambda _: puller.pull(QUEUE, 0).messages[2]


@contextlib.contextmanager
def asks_for_sinks(cluster: OneQueue) -> Iterator[Call]:
    with BlockingSinks(cluster.nameserver) as sinks:
        yield lambda _: sinks.cluster()


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("client", [sends, sends_batches, pulls, asks_for_sinks])
@pytest.mark.parametrize("is_warm", [False, True])
def test_an_exception_at_any_system_call_leaves_a_client_that_works(
    client: Callable[[OneQueue], AbstractContextManager[Call]],
    moment: str,
    is_warm: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = 0

    def calls(cluster: OneQueue) -> None:
        nonlocal steps
        for at in range(STEPS_MAX):
            with client(cluster) as call, monkeypatch.context() as patch:
                sockets = Sockets(patch, moment, interrupt)
                if is_warm:
                    call(SHORT)
                sockets.arm(at)
                with contextlib.suppress(Interrupt):
                    call(LONG)
                sockets.arm(-1)
                call(SHORT)
                if not sockets.came:
                    return
                steps += 1

    received = beside(calls)
    assert steps >= 3
    bodies = [bytes(command.body) for command in received if command.code in (SEND, RequestCode.SEND_BATCH_MESSAGE)]
    sizes = {len(SHORT), len(LONG), len(SHORT) + BATCHED, len(LONG) + BATCHED}
    assert {len(body) for body in bodies} <= sizes
    assert all(SHORT in body or LONG in body for body in bodies)


@pytest.mark.parametrize("moment", MOMENTS[:2])
@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_that_is_forked_at_any_system_call_has_ids_and_a_connection_of_its_own(
    moment: str, is_warm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, steps = os.getpid(), 0
    children: list[int] = []

    def fork() -> None:
        children.append(os.fork())

    def story(call: Call, sockets: Sockets) -> None:
        with contextlib.suppress(ClosedError):
            call(LONG)
        sockets.arm(-1)
        if os.getpid() != parent:
            call(b"child")
        else:
            call(b"parent")
            if sockets.came:
                assert os.waitpid(children[-1], 0)[1] == 0
            call(b"parent again")

    def calls(cluster: OneQueue) -> None:
        nonlocal steps
        for at in range(STEPS_MAX):
            with monkeypatch.context() as patch, contextlib.ExitStack() as stack:
                call = stack.enter_context(sends(cluster))
                sockets = Sockets(patch, moment, fork)
                if is_warm:
                    call(SHORT)
                sockets.arm(at)
                try:
                    story(call, sockets)
                finally:
                    if os.getpid() != parent:
                        os._exit(1 if sys.exc_info()[0] else 0)
                if not sockets.came:
                    return
                steps += 1

    received = [command for command in beside(calls) if command.code == SEND]
    assert steps >= (3 if is_warm else 9)
    ids = [properties.parse(command.ext["i"].encode())["UNIQ_KEY"] for command in received]
    assert len(set(ids)) == len(ids), "one id, two messages"
    counted = Counter(bytes(command.body) for command in received)
    assert counted.pop(b"child") == steps
    assert counted.pop(SHORT, 0) == (steps + 1 if is_warm else 0)
    assert counted == {LONG: steps + 1, b"parent": steps + 1, b"parent again": steps + 1}


def test_a_closed_client_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def calls(cluster: OneQueue) -> None:
        for client in (sends, pulls, asks_for_sinks):
            with client(cluster) as call:
                call(SHORT)
            with pytest.raises(ClosedError, match="was closed"):
                call(SHORT)

    beside(calls)


def test_a_signal_handler_may_ask_whatever_it_has_interrupted() -> None:
    def calls(cluster: OneQueue) -> None:
        def interrupted() -> None:
            with BlockingProducer("p", nameserver=cluster.nameserver) as producer, producer._session._guard:
                producer.send(Message("T", b"from a handler"))

        thread = threading.Thread(target=interrupted, daemon=True)
        thread.start()
        thread.join(WITHIN_S)
        assert not thread.is_alive(), "it waits for itself"

    beside(calls)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("client", [sends, pulls, asks_for_sinks])
def test_a_close_that_is_interrupted_at_any_system_call_closes_everything_and_so_does_a_second_one(
    client: Callable[[OneQueue], AbstractContextManager[Call]], moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0

    def calls(cluster: OneQueue) -> None:
        nonlocal steps
        for at in range(STEPS_MAX):
            with monkeypatch.context() as patch:
                sockets = Sockets(patch, moment, interrupt)
                opened = client(cluster)
                opened.__enter__()(SHORT)
                sockets.arm(at)
                with contextlib.suppress(Interrupt):
                    opened.__exit__(None, None, None)
                assert sockets.made and all(one.fileno() < 0 for one in sockets.made)
                assert "gantry-heartbeat" not in [thread.name for thread in threading.enumerate()]
                if not sockets.came:
                    return
                steps += 1

    received = beside(calls)
    goodbyes = [command for command in received if command.code == RequestCode.UNREGISTER_CLIENT]
    assert steps >= 3 and goodbyes if client is sends else steps == 0 and not goodbyes
