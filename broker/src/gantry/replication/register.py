"""The register of a group: one record, changed by compare-and-set; implementations differ, answers do not.

A version is a text that is compared and nothing else.  Every successful write gives a new one, also a write that
changes nothing: that is how a sender makes sure that an older request of its own, whose answer it never got, fails for
ever.

    read     the record as it is *now*, never from a cache
    write    on the version that was read: done, or one of

             RegisterConflictError      somebody wrote meanwhile: nothing was done, read again
             RegisterUnavailableError   nothing was sent, or it was refused without being looked at: nothing was done
             RegisterGoneError          there is no such register, or it is being deleted
             OutcomeUnknownError        sent, no answer: it may have been done, or may still be done later

Each call ends within a bounded time.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from gantry.errors import GantryError
from gantry.replication.record import Record


class RegisterError(GantryError):
    """What a register says instead of an answer; nothing was done, unless it is a conflict with a write of our own."""


class RegisterConflictError(RegisterError):
    """The version is not the register's any more."""


class RegisterUnavailableError(RegisterError):
    """The register did not take the request; trying again later may help."""


class RegisterGoneError(RegisterError):
    """There is no register: trying again does not help."""


class RegisterDamagedError(RegisterError):
    """The register holds something that no writer of ours left there; nothing is decided on it."""


class Seen(NamedTuple):
    """What a register said."""

    record: Record
    version: str


class Register(Protocol):
    """See the module."""

    async def read(self) -> Seen | None:
        """The record; None when there is none."""
        ...

    async def create(self, record: Record) -> Seen:
        """Make the register; RegisterConflictError when there is one."""
        ...

    async def write(self, record: Record, version: str) -> Seen:
        """Replace the record that has this version."""
        ...

    async def close(self) -> None:
        """Give connections back, if there are any."""
        ...
