"""Writes to a register, and reads it while no answer comes.

A register may carry out a write at once and answer it late, or never.  A reading with another version than the one that
was written on proves that the write is over: carried out, or refused.  So nobody waits for the answer any longer than
until such a reading.  One write and one reading are under way at most; both end when the caller is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from gantry.clock import Clock
from gantry.errors import OutcomeUnknownError
from gantry.replication.record import RegisterRecord
from gantry.replication.register import Register, RegisterError, Seen


class Written(NamedTuple):
    """What the register holds after a write.

    is_answered: the write was carried out, and `seen` is what it left.  Otherwise `seen` is a reading with another
    version than the one that was written on; the caller finds out from the record whose write it shows.
    """

    seen: Seen
    is_answered: bool


def ignore_reading(asked_s: float) -> None:
    """The default of `unchanged`: nothing follows from a reading of the old version."""


class RegisterWriter:
    """One process's writes to a register. again_s: pause before each reading, in seconds."""

    def __init__(self, register: Register, clock: Clock, again_s: float) -> None:
        self.register = register
        self._clock = clock
        self._again_s = again_s

    async def create(self, record: RegisterRecord) -> Written:
        """Create the register. Errors as of `Register.create`."""
        return await self._answer_or_reading(self.register.create(record), "", ignore_reading)

    async def write(
        self, record: RegisterRecord, version: str, unchanged: Callable[[float], None] = ignore_reading
    ) -> Written:
        """Replace the record, if it still has this version. Errors as of `Register.write`.

        unchanged: called with the moment (monotonic, seconds) at which a reading was sent that still showed the old
        version: the write was not carried out before it.
        """
        return await self._answer_or_reading(self.register.write(record, version), version, unchanged)

    async def _answer_or_reading(
        self, write: Awaitable[Seen], version: str, unchanged: Callable[[float], None]
    ) -> Written:
        writing = asyncio.ensure_future(write)
        try:
            while not await _is_done_within(writing, self._again_s):
                asked_s = self._clock.monotonic()
                seen = await self._read_beside(writing)
                if writing.done() or seen is None:
                    continue
                if seen.version != version:
                    return Written(seen, is_answered=False)
                unchanged(asked_s)
            return Written(writing.result(), is_answered=True)
        finally:
            await _end(writing)

    async def _read_beside(self, writing: asyncio.Future[Seen]) -> Seen | None:
        """Return a reading; None when the write was answered first, when there is no register, or it does not say."""
        reading = asyncio.ensure_future(self.register.read())
        try:
            both: set[asyncio.Future[Seen] | asyncio.Future[Seen | None]] = {writing, reading}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() else None
        except (RegisterError, OutcomeUnknownError):
            return None
        finally:
            await _end(reading)


async def _is_done_within(task: asyncio.Future[Seen], within_s: float) -> bool:
    await asyncio.wait({task}, timeout=within_s)
    return task.done()


async def _end(task: asyncio.Future[Seen] | asyncio.Future[Seen | None]) -> None:
    """Cancel a request whose answer is not needed any more, and wait until it has ended."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # read, or asyncio reports it
