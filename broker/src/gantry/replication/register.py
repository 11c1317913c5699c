"""The interface of a group's register: one record, changed by compare-and-set.

A version is an opaque text that is only compared.  Every successful write gives a new version, even when it changes
nothing.  So after a successful write every older request of the same sender fails, also one whose answer was lost.

    read     the record as it is *now*, never from a cache
    write    on the version that was read: done, or one of

             RegisterConflictError      another process wrote meanwhile: nothing was done, read again
             RegisterUnavailableError   not sent, or refused before it was processed: nothing was done
             RegisterGoneError          there is no such register, or it is being deleted
             OutcomeUnknownError        sent, no answer: it may have been done, or may still be done later

Each call ends within a bounded time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import NamedTuple, Protocol, TypeVar

from gantry.errors import GantryError
from gantry.replication.record import RegisterRecord

_DOUBLED = 2
_Found = TypeVar("_Found")


class RegisterError(GantryError):
    """A failed access; nothing was done, unless it is a conflict with a write of our own."""


class RegisterConflictError(RegisterError):
    """The register has another version than the expected one."""


class RegisterUnavailableError(RegisterError):
    """The register did not process the request; a later attempt may succeed."""


class RegisterGoneError(RegisterError):
    """There is no register, or it is being deleted; a later attempt does not help."""


class RegisterDamagedError(RegisterError):
    """The register's contents are invalid; no decision is based on them."""


class Seen(NamedTuple):
    """The record and its version, as they were read."""

    record: RegisterRecord
    version: str


class Patience:
    """The time-out of requests to a register, so that one which is slow for good is understood in the end.

    It doubles when there is no answer, `_DOUBLED` times at most, and falls to twice what the last answer took.
    """

    def __init__(self, least_s: float) -> None:
        self.timeout_s = least_s
        self._least_s = least_s

    async def wait(self, access: Awaitable[_Found]) -> _Found:
        """Return the result of one access; TimeoutError when there was none in time."""
        begun_s = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self.timeout_s):
                found = await access
        except TimeoutError:
            self.missed()
            raise
        self.answered(asyncio.get_running_loop().time() - begun_s)
        return found

    def answered(self, took_s: float) -> None:
        """Note that an answer came after so many seconds."""
        self.timeout_s = max(self._least_s, min(self.timeout_s, 2 * took_s))

    def missed(self) -> None:
        """Note that no answer came in time."""
        self.timeout_s = min(2 * self.timeout_s, self._least_s * 2**_DOUBLED)


class Register(Protocol):
    """The register of one group. Each call ends within a bounded time and raises one of the errors above."""

    async def read(self) -> Seen | None:
        """Return record and version; None when there is no register."""
        ...

    async def create(self, record: RegisterRecord) -> Seen:
        """Create the register; RegisterConflictError when there is one."""
        ...

    async def write(self, record: RegisterRecord, version: str) -> Seen:
        """Replace the record, if it still has this version."""
        ...

    async def close(self) -> None:
        """Close connections, if there are any."""
        ...
