"""The side door tells what it is told."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable

import pytest

pytest.importorskip("aiohttp", reason="needs the server extra")

from gantry.errors import ConfigError
from gantry.transport.http import HealthServer
from testkit.patience import HANG_S
from testkit.turning import until

Body = bytes | Awaitable[bytes]


def door(text: Callable[[], Body] = lambda: b"up 1\n", port: int = 0, packages: tuple[str, ...] = ()) -> HealthServer:
    return HealthServer(
        "127.0.0.1", port, lambda: text, lambda: (True, "well"), lambda: (False, "recovering"), packages
    )


def play(scene: Callable[[], Awaitable[None]], on: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """On plain asyncio or uvloop: the first visitor's connection changes hands, and each has transports of its own."""

    async def run() -> None:
        await scene()

    with asyncio.Runner(loop_factory=on) as runner:
        runner.run(run())


LOOPS = pytest.mark.parametrize("on", [asyncio.new_event_loop, pytest.importorskip("uvloop").new_event_loop])


async def get(port: int, path: str) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), HANG_S)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What comes until the connection is closed."""
    try:
        return await asyncio.wait_for(reader.read(), HANG_S)
    except ConnectionResetError:
        return b""


@LOOPS
def test_three_paths_answer_and_others_do_not(on: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def scene() -> None:
        http = door()
        port = await http.start()
        for _ in range(2):  # what is loaded by the first visitor, and what the second finds
            assert await get(port, "/metrics") == (200, b"up 1\n")
            assert await get(port, "/healthz") == (200, b"well\n")
            assert await get(port, "/readyz") == (503, b"recovering\n")
            assert (await get(port, "/secret"))[0] == 404
        with pytest.raises(ConfigError, match=str(port)):
            await door(port=port).start()
        await http.close()

    play(scene, on)


@LOOPS
def test_who_comes_while_the_pages_are_loaded_gets_an_answer(on: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def scene() -> None:
        http = door()
        port = await http.start()
        answers = await asyncio.gather(*(get(port, "/healthz") for _ in range(20)))
        assert answers == [(200, b"well\n")] * 20
        await http.close()

    play(scene, on)


@LOOPS
def test_closing_while_the_pages_are_loaded_ends_the_visit(on: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def scene() -> None:
        may_load = threading.Event()

        def load() -> Callable[[], Body]:
            assert may_load.wait(HANG_S)
            return lambda: b"up 1\n"

        http = HealthServer("127.0.0.1", 0, load, lambda: (True, "well"))
        reader, writer = await asyncio.open_connection("127.0.0.1", await http.start())
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: http._loading is not None)
        closing = asyncio.ensure_future(http.close())
        await asyncio.sleep(0)
        may_load.set()
        await closing
        assert await ended(reader) == b""
        writer.close()

    play(scene, on)


@LOOPS
def test_a_visit_without_a_whole_head_ends_and_gives_way_to_one_that_asks(
    on: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scene() -> None:
        http = door()
        http._visits.most, http._visits.head_s = 4, 0.3
        port = await http.start()
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for _, writer in silent:
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: ")
        for _ in range(8):  # more than there are places for
            assert await get(port, "/healthz") == (200, b"well\n")
        for reader, writer in silent:
            assert await ended(reader) == b""
            writer.close()
        assert not http._visits.open
        await http.close()

    play(scene, on)


@LOOPS
def test_the_oldest_silent_visit_is_closed_for_a_new_one(on: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def scene() -> None:
        http = door()
        http._visits.most = 2
        port = await http.start()
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
        for reader, writer in silent[:4]:
            assert await ended(reader) == b""
            writer.close()
        assert await get(port, "/healthz") == (200, b"well\n")
        assert len(http._visits.open) <= 1
        await http.close()
        for reader, writer in silent[4:]:
            assert await ended(reader) == b""
            writer.close()

    play(scene, on)


@LOOPS
def test_a_visit_that_does_not_read_its_answer_ends(on: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def scene() -> None:
        http = door(lambda: bytes(64 << 20))
        http._visits.life_s = 0.3
        _, writer = await asyncio.open_connection("127.0.0.1", await http.start(), limit=1 << 10)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: bool(http._visits.open))
        await until(lambda: not http._visits.open)
        writer.close()
        await http.close()

    play(scene, on)


@LOOPS
def test_visits_that_do_not_read_their_answers_give_way_to_one_that_asks_and_hold_up_no_end(
    on: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantry.transport.http._LIFE_S", 2 * HANG_S)

    async def scene() -> None:
        http = door(lambda: bytes(16 << 20))
        http._visits.most = 3
        port = await http.start()
        deaf = [await asyncio.open_connection("127.0.0.1", port, limit=1 << 10) for _ in range(3)]
        for _, writer in deaf:
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: sum(visit.has_output for visit in http._visits.open) == 3)
        for _ in range(2):
            assert await get(port, "/healthz") == (200, b"well\n")
        assert sum(visit.has_output for visit in http._visits.open) == 2
        ended, _ = await asyncio.wait([asyncio.ensure_future(http.close())], timeout=HANG_S)
        assert ended, "the end waits for visits as long as they may take"
        for _, writer in deaf:
            writer.close()

    play(scene, on)


@LOOPS
def test_visits_whose_body_does_not_come_give_way_to_one_that_asks(on: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def scene() -> None:
        http = door()
        http._visits.most = 4
        port = await http.start()
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        for _, writer in held:
            writer.write(b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
        await until(lambda: sum(one.is_heard for one in http._visits.open) == 4)
        for _ in range(6):
            assert await get(port, "/healthz") == (200, b"well\n")
        for _, writer in held:
            writer.close()
        await http.close()

    play(scene, on)


@LOOPS
def test_a_head_without_end_is_not_kept(on: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def scene() -> None:
        http = door()
        reader, writer = await asyncio.open_connection("127.0.0.1", await http.start())
        writer.write(b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 4096)
        assert await ended(reader) == b""
        writer.close()
        await http.close()

    play(scene, on)


def test_nobody_who_has_no_visitor_loads_the_library() -> None:
    code = (
        "import asyncio, sys\n"
        "from gantry.transport.http import HealthServer\n"
        "async def play():\n"
        "    http = HealthServer('127.0.0.1', 0, lambda: bytes, lambda: (True, ''), packages=('prometheus_client',))\n"
        "    await http.start()\n"
        "    await http.close()\n"
        "asyncio.run(play())\n"
        "print([name for name in ('aiohttp', 'prometheus_client') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=HANG_S)
    assert done.stdout.strip() == "[]"


async def test_a_package_that_is_missing_is_missed_at_the_start() -> None:
    with pytest.raises(ModuleNotFoundError, match="no package gantry_nothing"):
        await door(packages=("gantry_nothing",)).start()
