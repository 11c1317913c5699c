"""Calls on asyncio, over a bounded pool of connections."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self, TypeVar

import httpx

from gantry.clock import Clock, SystemClock
from gantry.errors import GantryError
from gantry.mns import httpxcalls
from gantry.mns.exchange import AccountSettings, Call, HttpAnswer, pause_before

T = TypeVar("T")


class AsyncConnection:
    """Calls on asyncio; `perform` may run many times at once, `connections_max` of them on the wire."""

    def __init__(self, settings: AccountSettings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._client = httpx.AsyncClient(
            limits=httpxcalls.limits(settings), verify=httpxcalls.trust(settings), trust_env=False
        )

    async def perform(self, call: Call[T]) -> T:
        """Send a call, again where that is safe, and return what its answer says; raises GantryError."""
        attempt = 1
        while True:
            try:
                return call.read(await self._exchange(call))
            except GantryError as error:
                attempt += 1
                pause_s = pause_before(call, attempt, error, self._settings.attempts)
                if pause_s is None:
                    raise
                await asyncio.sleep(pause_s)

    async def close(self) -> None:
        """End all connections."""
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _exchange(self, call: Call[T]) -> HttpAnswer:
        began = self._clock.monotonic()
        request = httpxcalls.request(self._client.build_request, call, self._settings, self._clock)
        try:
            response = await self._client.send(request, stream=True)
            try:
                body = bytearray()
                async for piece in response.aiter_raw():
                    httpxcalls.add_bounded(body, piece)
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            raise httpxcalls.translated(error, call, self._settings) from error
        return httpxcalls.answer(response, body, began, self._clock)
