"""The side door tells what it is told."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("aiohttp", reason="needs the server extra")

from gantry.errors import ConfigError
from gantry.transport.http import HealthServer


async def get(port: int, path: str) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), 5.0)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def test_three_paths_answer_and_others_do_not() -> None:
    async def play() -> None:
        http = HealthServer("127.0.0.1", 0, lambda: b"up 1\n", lambda: (True, "well"), lambda: (False, "recovering"))
        port = await http.start()
        assert await get(port, "/metrics") == (200, b"up 1\n")
        assert await get(port, "/healthz") == (200, b"well\n")
        assert await get(port, "/readyz") == (503, b"recovering\n")
        assert (await get(port, "/secret"))[0] == 404
        with pytest.raises(ConfigError, match=str(port)):
            await HealthServer("127.0.0.1", port, lambda: b"", lambda: (True, "")).start()
        await http.close()

    asyncio.run(play())
