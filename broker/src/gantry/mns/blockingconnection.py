"""Calls that block, over a bounded pool of connections that threads may share."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self, TypeVar

import httpx

from gantry.clock import Clock, SystemClock
from gantry.errors import GantryError
from gantry.mns import httpxcalls
from gantry.mns.exchange import AccountSettings, Call, HttpAnswer, pause_before

T = TypeVar("T")


class BlockingConnection:
    """Calls that block; threads may share it, `connections_max` of their calls are on the wire at once."""

    def __init__(self, settings: AccountSettings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._client = httpx.Client(
            limits=httpxcalls.limits(settings), verify=httpxcalls.trust(settings), trust_env=False
        )

    def perform(self, call: Call[T]) -> T:
        """Send a call, again where that is safe, and return what its answer says; raises GantryError."""
        attempt = 1
        while True:
            try:
                return call.read(self._exchange(call))
            except GantryError as error:
                attempt += 1
                pause_s = pause_before(call, attempt, error, self._settings.attempts)
                if pause_s is None:
                    raise
                time.sleep(pause_s)

    def close(self) -> None:
        """End all connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _exchange(self, call: Call[T]) -> HttpAnswer:
        began = self._clock.monotonic()
        request = httpxcalls.request(self._client.build_request, call, self._settings, self._clock)
        try:
            response = self._client.send(request, stream=True)
            try:
                body = bytearray()
                for piece in response.iter_raw():
                    httpxcalls.add_bounded(body, piece)
            finally:
                response.close()
        except httpx.HTTPError as error:
            raise httpxcalls.translated(error, call, self._settings) from error
        return httpxcalls.answer(response, body, began, self._clock)
