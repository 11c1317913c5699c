"""A register as a file, for groups whose members run on one host.

`<path>` holds the record and its version.  `<path>.lock` is locked around every access, reads too, so that no process
reads between the two renames of a replacement.  The lock is a separate file because the register itself is replaced,
and a lock on a replaced file locks nothing.  A write is durable, with its folder, before it is answered: a version that
a power cut had lost would be given out twice.

A version is a counter and a random text.  When the register is removed, or replaced by an older copy, the counter
continues from a lower number; the random text keeps old and new versions distinct.  The backup is read only when a
replacement was interrupted, that is beside `<path>.tmp`.

While `<path>.teardown` exists every access raises RegisterGoneError: a group that is stopped as a whole does no
handover and changes no set.

The lock is released when its process ends.  Waiting for it is bounded: its owner makes two fsyncs, which take less than
a second.  After an error of the disk in a write the outcome is unknown, and also when a disk does not answer within
`_WITHIN_S`; that time grows for a disk that is slow (`register.Patience`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from secrets import token_hex

from gantry.errors import OutcomeUnknownError, StoreError
from gantry.replication.record import RegisterRecord, from_fields, to_fields
from gantry.replication.register import (
    Patience,
    RegisterConflictError,
    RegisterDamagedError,
    RegisterGoneError,
    RegisterUnavailableError,
    Seen,
)
from gantry.store import statefile
from gantry.store.disk import Disk

TEARDOWN = ".teardown"  # a file with this suffix beside the register: the group is being stopped
_ATTEMPTS = 100
_PAUSE_S = 0.01
_WITHIN_S = 5.0
_CHANCE_BYTES = 8

# Runs a blocking function outside the loop's thread; tests run it directly.
Run = Callable[[Callable[[], "Seen | None"]], Awaitable["Seen | None"]]


async def run_here(job: Callable[[], Seen | None]) -> Seen | None:
    """Run a function on the loop's thread, for processes whose loop may wait for a disk."""
    return job()


class FileRegister:
    """Implements `register.Register` with a file."""

    def __init__(
        self, path: str, disk: Disk, run: Run = run_here, pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._path = path
        self._disk = disk
        self._run = run
        self._pause = pause
        self._patience = Patience(_WITHIN_S)

    async def read(self) -> Seen | None:
        """Return record and version; None when there is no register."""
        try:
            return await self._locked(self._load)
        except OutcomeUnknownError as error:
            raise RegisterUnavailableError(str(error)) from error

    async def create(self, record: RegisterRecord) -> Seen:
        """Create the register; RegisterConflictError when there is one."""
        return _there(await self._locked(partial(self._create, record)))

    async def write(self, record: RegisterRecord, version: str) -> Seen:
        """Replace the record, if it still has this version."""
        return _there(await self._locked(partial(self._replace, record, version)))

    async def close(self) -> None:
        """Do nothing: a file register has no connections."""

    async def _locked(self, job: Callable[[], Seen | None]) -> Seen | None:
        """Run `job` with the lock held. RegisterUnavailableError: no lock, nothing was done. OutcomeUnknownError: the
        disk hangs.
        """
        busy = ""
        for _ in range(_ATTEMPTS):
            try:
                return await self._within_patience(job)
            except _BusyError as error:
                busy = str(error)
            await self._pause(_PAUSE_S)
        raise RegisterUnavailableError(
            f"the register stayed locked for {_ATTEMPTS * _PAUSE_S:.0f} s: {busy.partition(';')[0]}; if that process "
            "is stopped, let it go on (kill -CONT) or end it (kill -KILL)"
        )

    async def _within_patience(self, job: Callable[[], Seen | None]) -> Seen | None:
        within_s = self._patience.timeout_s
        try:
            return await self._patience.wait(self._run(partial(self._with_lock, job)))
        except TimeoutError as error:
            raise OutcomeUnknownError(f"{self._path}: the disk did not answer within {within_s:g} s") from error

    def _with_lock(self, job: Callable[[], Seen | None]) -> Seen | None:
        try:
            self._disk.make_folders(self._path.rsplit("/", 1)[0])
            lock = self._disk.lock(f"{self._path}.lock")
        except StoreError as error:
            raise _BusyError(str(error)) from error
        try:
            if self._disk.exists(f"{self._path}{TEARDOWN}"):
                raise RegisterGoneError(f"{self._path}: the group is being stopped")
            return job()
        finally:
            lock.release()

    def _load(self) -> Seen | None:
        try:
            source = statefile.read_newest(self._disk, self._path)
            if source is None:
                return None
            number, chance = source.get("version"), source.get("chance", "")
            if not isinstance(number, int) or number < 1 or not isinstance(chance, str):
                raise ValueError(f"version {number!r}, chance {chance!r}")
            return Seen(from_fields(source), _version(number, chance))
        except ValueError as error:
            raise RegisterDamagedError(
                f"{self._path}: {error}; remove it only with all members at hand, the group is then recovered from them"
            ) from error
        except StoreError as error:
            raise RegisterUnavailableError(str(error)) from error

    def _create(self, record: RegisterRecord) -> Seen:
        found = self._load()
        if found is not None:
            raise RegisterConflictError(f"{self._path} exists, version {found.version}")
        return self._save(record, 1)

    def _replace(self, record: RegisterRecord, version: str) -> Seen:
        found = self._load()
        if found is None:
            raise RegisterGoneError(f"{self._path} does not exist")
        if found.version != version:
            raise RegisterConflictError(f"{self._path} has version {found.version}, expected {version}")
        return self._save(record, int(version.partition("-")[0]) + 1)

    def _save(self, record: RegisterRecord, number: int) -> Seen:
        chance = token_hex(_CHANCE_BYTES)
        try:
            table: dict[str, object] = {**to_fields(record), "version": number, "chance": chance}
            statefile.replace(self._disk, self._path, statefile.to_bytes(table), for_newest=True)
        except StoreError as error:
            raise OutcomeUnknownError(f"{self._path}: {error}") from error
        return Seen(record, _version(number, chance))


def _version(number: int, chance: str) -> str:
    return f"{number}-{chance}" if chance else str(number)  # without: written by a former version


class _BusyError(Exception):
    """Another process holds the lock, or the lock file cannot be made."""


def _there(seen: Seen | None) -> Seen:
    assert seen is not None
    return seen
