"""Every asyncio client, at work, begins and ends: whatever is cancelled or fails meanwhile, nothing stays open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.lifecycle import Lifecycle
from gantry.errors import ClosedError, RefusedError
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.clientsatwork import KINDS, AsksBrokers, Kind, Listens, Orders, Play, Polls, Transacts, remoting_of
from testkit.interrupting import Cancelled
from testkit.onequeue import MASTER, SLAVE, Group
from testkit.patience import HANG_S
from testkit.scripted import NAMESERVER, refuse, silence
from testkit.turning import until

CHECK_FILTER = RequestCode.CHECK_CLIENT_CONFIG
STEPS_MAX = 200
each_kind_with_a_start = pytest.mark.parametrize("kind", KINDS[:-1], ids=lambda kind: type(kind).__name__)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: type(kind).__name__)


async def played(folder: Path, story: Callable[[Play], Awaitable[None]]) -> None:
    """Tell a story; at its end neither a task nor a connection of its client is there."""
    async with asyncio.timeout(HANG_S), Group(3) as cluster:
        before = asyncio.all_tasks()
        play = Play(cluster, folder)
        await story(play)
        for call in play.under_way:
            call.cancel()  # one that uses a message, not the client; calls of the client have ended
        await asyncio.wait([asyncio.ensure_future(asyncio.sleep(0)), *play.under_way])
        for name in cluster.servers:
            await until(lambda name=name: not cluster.connections(name))  # type: ignore[misc]
        assert not asyncio.all_tasks() - before
        hands = [handle for handle in asyncio.get_running_loop()._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]
        assert [handle for handle in hands if "gantry/client" in repr(handle)] == []


async def interrupted(work: Coroutine[Any, Any, None], at: int) -> bool:
    """Run the work and cancel it at one of its waits. Return whether it got there."""
    waits = Cancelled(work, at)

    async def awaited() -> None:
        await waits

    task = asyncio.ensure_future(awaited())
    await asyncio.wait([task])
    assert task.cancelled() or not waits.came, "it says that it was cancelled"
    return waits.came


def left(before: set[asyncio.Task[Any]], play: Play) -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - before - set(play.under_way)


@each_kind
async def test_a_client_that_was_stopped_at_its_work_has_unregistered_once_and_left_nothing(
    kind: Kind, tmp_path: Path
) -> None:
    async def story(play: Play) -> None:
        before = asyncio.all_tasks()
        client = kind.make(play)
        await kind.start(client)
        await kind.occupy(play, client)
        play.dial(client)
        connected = [name for name in (MASTER, SLAVE) if play.cluster.connections(name)]
        await kind.stop(client)
        assert not left(before, play), "when stop() returns, nothing has to be waited for"
        goodbyes = [name for name, command in play.cluster.received if command.code == RequestCode.UNREGISTER_CLIENT]
        assert sorted(goodbyes) == (connected if kind.unregisters else [])
        asked = len(play.cluster.received)
        await asyncio.gather(kind.stop(client), kind.stop(client))
        assert len(play.cluster.received) == asked, "a second stop has nothing to say"

    await played(tmp_path, story)


@each_kind
async def test_two_stops_at_a_time_commit_what_is_done_and_leave_nothing(kind: Kind, tmp_path: Path) -> None:
    async def story(play: Play) -> None:
        before = asyncio.all_tasks()
        client = kind.make(play)
        await kind.start(client)
        await kind.occupy(play, client)
        play.dial(client)
        await asyncio.gather(kind.stop(client), kind.stop(client))
        assert not left(before, play)
        if isinstance(kind, Polls):
            assert play.cluster.committed() == [3]

    await played(tmp_path, story)


@each_kind
async def test_a_stop_that_is_cancelled_at_any_wait_leaves_nothing(kind: Kind, tmp_path: Path) -> None:
    for at in range(STEPS_MAX):
        came = False

        async def story(play: Play, at: int = at) -> None:
            nonlocal came
            before = asyncio.all_tasks()
            client = kind.make(play)
            await kind.start(client)
            await kind.occupy(play, client)
            play.dial(client)
            came = await interrupted(kind.stop(client), at)
            await until(lambda: not left(before, play))
            assert not remoting_of(client).connections()
            await kind.stop(client)

        await played(tmp_path, story)
        if not came:
            assert at > 0
            return
    raise AssertionError("it does not end")


@each_kind
async def test_a_start_that_is_cancelled_at_any_wait_leaves_nothing(kind: Kind, tmp_path: Path) -> None:
    for at in range(STEPS_MAX):
        came = False

        async def story(play: Play, at: int = at) -> None:
            nonlocal came
            before = asyncio.all_tasks()
            client = kind.make(play)
            came = await interrupted(kind.start(client), at)
            if came:
                assert not left(before, play)
            else:
                await kind.stop(client)

        await played(tmp_path, story)
        if not came:
            return
    raise AssertionError("it does not end")


class BrokenError(Exception):
    pass


class Breaking:
    """Lets the n-th step of a start fail: the session's, the routes', each task's."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int) -> None:
        self.came = False
        self._left = at
        for owner, name in ((Session, "start"), (Routes, "start"), (Lifecycle, "spawn")):
            patch.setattr(owner, name, self._breaking(getattr(owner, name)))

    def _breaking(self, usual: Callable[..., object]) -> Callable[..., object]:
        def step(*arguments: Any) -> object:
            self._left -= 1
            if self._left >= 0:
                return usual(*arguments)
            self.came = True
            for one in arguments:
                if asyncio.iscoroutine(one):
                    one.close()
            raise BrokenError

        return step


@each_kind
async def test_a_start_that_fails_in_any_part_leaves_nothing(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(STEPS_MAX):
        breaking: Breaking | None = None

        async def story(play: Play, at: int = at) -> None:
            nonlocal breaking
            before = asyncio.all_tasks()
            client = kind.make(play)
            with monkeypatch.context() as patch:
                breaking = Breaking(patch, at)
                try:
                    await kind.start(client)
                except BrokenError:
                    assert not left(before, play)
                else:
                    await kind.stop(client)

        await played(tmp_path, story)
        assert breaking is not None
        if not breaking.came:
            assert at > 0 or isinstance(kind, AsksBrokers)
            return
    raise AssertionError("it does not end")


@pytest.mark.parametrize("kind", [Listens(), Orders(), Polls()], ids=lambda kind: type(kind).__name__)
async def test_a_filter_that_a_broker_refuses_ends_the_start_and_leaves_nothing(kind: Kind, tmp_path: Path) -> None:
    async def story(play: Play) -> None:
        before = asyncio.all_tasks()
        play.cluster.answers[MASTER, CHECK_FILTER] = refuse(ResponseCode.SUBSCRIPTION_PARSE_FAILED)
        client = kind.make(play)
        with pytest.raises(RefusedError):
            await client.start()
        assert not left(before, play)

    await played(tmp_path, story)


@pytest.mark.parametrize("kind", [Listens(), Orders(), Polls(), Transacts()], ids=lambda kind: type(kind).__name__)
async def test_a_stop_during_a_start_ends_it_with_an_error(kind: Kind, tmp_path: Path) -> None:
    async def story(play: Play) -> None:
        before = asyncio.all_tasks()
        meets = NAMESERVER, RequestCode.GET_BROKER_CLUSTER_INFO
        waits_at = meets if isinstance(kind, Transacts) else (MASTER, CHECK_FILTER)
        play.cluster.answers[waits_at] = silence
        client = kind.make(play)
        starting = asyncio.ensure_future(client.start())
        await until(lambda: play.cluster.asked(*waits_at))
        await client.stop()
        with pytest.raises(ClosedError):
            await starting
        assert not left(before, play)

    await played(tmp_path, story)


@each_kind_with_a_start
async def test_a_client_that_never_began_may_be_stopped_and_not_begin_then(kind: Kind, tmp_path: Path) -> None:
    async def story(play: Play) -> None:
        client = kind.make(play)
        await kind.stop(client)
        with pytest.raises(AssertionError, match="start\\(\\) was called before"):
            await kind.start(client)

    await played(tmp_path, story)


@each_kind_with_a_start
async def test_a_second_start_is_an_error_and_not_a_second_set_of_tasks(kind: Kind, tmp_path: Path) -> None:
    async def story(play: Play) -> None:
        client = kind.make(play)
        await kind.start(client)
        before = asyncio.all_tasks()
        with pytest.raises(AssertionError, match="start\\(\\) was called before"):
            await kind.start(client)
        assert not asyncio.all_tasks() - before
        await kind.stop(client)

    await played(tmp_path, story)
