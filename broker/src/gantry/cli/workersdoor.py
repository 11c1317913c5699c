"""/metrics, /healthz and /readyz of several worker processes at one port.

    /metrics   what all workers say, each series with the label `worker` (from 0); one that is silent has
               gantry_proxy_ready 0 and nothing else
    /readyz    ready while every worker is: the kernel gives each of them connections
    /healthz   healthy while every worker answers; silent for 30 s is not

Workers are asked every 2 s on the loopback address, and each answer is waited for at most 3 s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import aiohttp

from gantry.transport.http import HealthServer
from gantry.transport.tasks import cancelled

_EVERY_S = 2.0
_ASK_S = 3.0
_LATELY_S, _SILENT_S = 10.0, 30.0
_SILENT = "# HELP gantry_proxy_ready \n# TYPE gantry_proxy_ready gauge\ngantry_proxy_ready 0\n"


class WorkersDoor:
    """The HTTP server of the parent process; start() and close() once each."""

    def __init__(self, workers: Sequence[tuple[str, int]], host: str, port: int) -> None:
        """workers: the addresses of their own HTTP servers."""
        self.port = port  # the real one after start() when 0 was asked for
        self._workers = workers
        self._server = HealthServer(host, port, lambda: self.metrics, self._is_healthy, self._is_ready)
        self._session: aiohttp.ClientSession | None = None
        self._heard_at: list[float] = []
        self._faults: list[str] = []  # of each worker, why it is not ready; empty: it is
        self._looking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Ask all workers once, then listen; ConfigError when that is not possible."""
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ASK_S))
        now = asyncio.get_running_loop().time()
        self._heard_at = [now for _ in self._workers]
        self._faults = ["it was not asked yet" for _ in self._workers]
        await self._look()
        self.port = await self._server.start()
        self._looking = asyncio.create_task(self._keep(), name="gantry-proxy-workers")

    async def close(self) -> None:
        """Stop listening and asking."""
        if self._looking is not None:
            await cancelled([self._looking])
        await self._server.close()
        if self._session is not None:
            await self._session.close()

    async def metrics(self) -> bytes:
        """Return the metrics of all workers as they are now."""
        pages = await asyncio.gather(*(self._page(number, "metrics") for number in range(len(self._workers))))
        return merged([text if status == 200 else _SILENT for status, text in pages]).encode()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            await self._look()

    async def _look(self) -> None:
        pages = await asyncio.gather(*(self._page(number, "readyz") for number in range(len(self._workers))))
        for number, (status, text) in enumerate(pages):
            if status:
                self._heard_at[number] = asyncio.get_running_loop().time()
            self._faults[number] = "" if status == 200 else text.strip() or "it does not answer"

    async def _page(self, number: int, name: str) -> tuple[int, str]:
        """Return the HTTP status of a worker's page, and its text; 0 when it does not answer in time."""
        assert self._session is not None, "start() makes it"
        host, port = self._workers[number]
        try:
            async with self._session.get(f"http://{host}:{port}/{name}") as answer:
                return answer.status, await answer.text()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return 0, str(error)

    def _is_healthy(self) -> tuple[bool, str]:
        return self._verdict(_SILENT_S, ["" for _ in self._workers])

    def _is_ready(self) -> tuple[bool, str]:
        return self._verdict(_LATELY_S, self._faults)

    def _verdict(self, silent_s: float, faults: Sequence[str]) -> tuple[bool, str]:
        now = asyncio.get_running_loop().time()
        for number, (heard_at, fault) in enumerate(zip(self._heard_at, faults, strict=True)):
            if now - heard_at >= silent_s:
                return False, f"worker {number} has not answered for {now - heard_at:.0f} s"
            if fault:
                return False, f"worker {number}: {fault}"
        return True, f"{len(self._workers)} workers"


def merged(texts: Sequence[str]) -> str:
    """Return one exposition of those of several workers: each family once, each series with its worker's number."""
    heads: dict[str, list[str]] = {}
    series: dict[str, list[str]] = {}
    for number, text in enumerate(texts):
        name = ""
        for line in text.splitlines():
            if line.startswith("# "):
                name = line.split(" ", 3)[2]
                if number == 0 or name not in heads or len(heads[name]) < 2:
                    heads.setdefault(name, []).append(line)
            elif line:
                series.setdefault(name, []).append(_labelled(line, number))
    lines = (line for name, head in heads.items() for line in (*head, *series.get(name, ())))
    return "\n".join(lines) + "\n"


def _labelled(line: str, number: int) -> str:
    name, has_labels, labels = line.partition("{")
    if has_labels:
        return f'{name}{{worker="{number}",{labels}'
    name, _, value = line.partition(" ")
    return f'{name}{{worker="{number}"}} {value}'
