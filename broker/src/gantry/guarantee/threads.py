"""Blocking work of a channel in a thread of its own, which a hung server cannot take from anybody else.

The loop's shared threads are for the database: a mail server that sends a byte a minute would take one after the other.
Here the next call is refused while the former one still hangs, and the process may end meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from gantry.errors import GantryError


class StillBusyError(GantryError):
    """The former call still hangs."""


class OneThread:
    """Runs one blocking call at a time in a daemon thread; owned by one event loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._is_busy = False  # not whether the thread lives: it lives a little longer than its call

    async def run(self, work: Callable[[], None], end: Callable[[], None]) -> None:
        """Run `work` and raise what it raised; when this is cancelled `end` is called, which ends it soon."""
        if self._is_busy:
            raise StillBusyError(f"{self._name}: the call before still waits for its server")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def finish(error: BaseException | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        def call() -> None:
            error: BaseException | None = None
            try:
                work()
            except BaseException as found:  # noqa: BLE001  raised by run()
                error = found
            self._is_busy = False
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(finish, error)

        self._is_busy = True
        try:
            threading.Thread(target=call, name=self._name, daemon=True).start()
        except BaseException:
            self._is_busy = False
            raise
        try:
            await done
        except asyncio.CancelledError:
            end()
            raise
