"""What a scrape of 10 000 series costs those who send meanwhile: p99 with one scrape a second, and without any.

Rounds with and without scrapes take turns, so that both see the same machine; the figure is the median of the ratios.
"""

from __future__ import annotations

import asyncio
import threading
import time
import urllib.request
from typing import TYPE_CHECKING

from lag import fill
from servers import Server, gantry

if TYPE_CHECKING:
    from scenarios import Bench, Row

_ROUNDS, _SECONDS = 5, 6.0
_SCRAPE_EVERY_S = 1.0


def scrapes(bench: Bench) -> list[Row]:
    """One row: the ratio of the two p99, and what one scrape is."""
    with gantry(bench.folder / "scrapes") as server:
        asyncio.run(fill(f"127.0.0.1:{server.port}", f"127.0.0.1:{server.nameserver_port}"))
        series = sum(1 for line in _scraped(server).splitlines() if not line.startswith(b"#"))
        ratios, alone, beside, scrape_ms = [], [], [], []
        for _ in range(_ROUNDS):
            alone.append(_p99(bench, server))
            with _Scraping(server) as scraping:
                beside.append(_p99(bench, server))
            ratios.append(beside[-1] / alone[-1])
            scrape_ms += scraping.took_ms
    row = {
        "figure": f"send 1 KiB 1 x 1, p99 with a scrape of {series} series each second : without",
        "ratio": round(_median(ratios), 2),
        "p99_us": f"{_median(beside):.0f} : {_median(alone):.0f}",
        "ms": round(_median(scrape_ms)),
        "target": "unaffected: ratio <= 1.1",
    }
    return [row]


def _p99(bench: Bench, server: Server) -> float:
    return bench.load(server, mode="send", connections=1, window=1, seconds=_SECONDS)["p99_us"]


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _scraped(server: Server) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics", timeout=30) as answer:
        text: bytes = answer.read()
        return text


class _Scraping:
    """A thread that scrapes until the block ends."""

    def __init__(self, server: Server) -> None:
        self.took_ms: list[float] = []
        self._server = server
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> _Scraping:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            begun = time.monotonic()
            _scraped(self._server)
            self.took_ms.append((time.monotonic() - begun) * 1000)
            self._over.wait(_SCRAPE_EVERY_S)
