"""Who may call: access ids and their secrets, from a file that is read again when it changes.

    # one user a line
    orders-service  9f86d081884c7d659a2feaa0c55ad015

Id and secret are parted by blanks and have none.  A file that cannot be read later, or has a line that is wrong, leaves
the users as they were, and is logged: a slip while editing must not lock everybody out, nor let anybody in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from gantry.errors import ConfigError

log = logging.getLogger(__name__)

_EVERY_S = 1.0
_FILE_BYTES_MAX = 4 << 20
_USERS_MAX = 10_000
_ID_CHARACTERS_MAX = 128


def read(path: Path) -> dict[str, str]:
    """Return the secrets by access id; ConfigError when the file cannot be read, has no user or a wrong line."""
    try:
        with path.open("rb") as file:
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path}: the users of queues cannot be read: {error}") from error
    return read_lines(data, str(path))


def read_lines(data: bytes, where: str) -> dict[str, str]:
    """Return the secrets by access id; ConfigError, which begins with `where` and shows no secret, as for `read`."""
    try:
        text = data.decode()
    except UnicodeError as error:
        raise ConfigError(f"{where}: the users of queues are no UTF-8") from error
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or ":" in words[0] or len(words[0]) > _ID_CHARACTERS_MAX or words[0] in found:
            raise ConfigError(f"{where}: line {number}: expected ID SECRET, each id once and without a colon")
        found[words[0]] = words[1]
    if not 0 < len(found) <= _USERS_MAX or len(data) > _FILE_BYTES_MAX:
        raise ConfigError(f"{where}: {len(found)} users, expected 1 to {_USERS_MAX}, one a line: ID SECRET")
    return found


class Users:
    """The users as the file has them now; without a file everybody may call, without a signature."""

    def __init__(self, path: Path | None) -> None:
        self.secrets: Mapping[str, str] | None = None if path is None else read(path)
        self._path = path
        self._mark = _mark(path)
        self._failure = ""  # of the last reading

    async def follow(self) -> None:
        """Read the file whenever it changes, until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_S)
            if self._path is not None:
                await asyncio.to_thread(self._look, self._path)

    def _look(self, path: Path) -> None:
        mark = _mark(path)
        if mark == self._mark:
            return
        try:
            self.secrets = read(path)
        except ConfigError as error:
            # Tried again: rights and descriptors change without a change of the file.
            if str(error) != self._failure:
                log.error("%s; the users stay as they were", error)
            self._failure = str(error)
        else:
            self._mark, self._failure = mark, ""
            log.info("%s: %d users", path, len(self.secrets))


def _mark(path: Path | None) -> tuple[int, int, int] | None:
    """Return what changes with the file, also where it is a link that is turned, as in a mounted Secret."""
    try:
        seen = path.stat() if path is not None else None
    except OSError:
        return None
    return None if seen is None else (seen.st_ino, seen.st_mtime_ns, seen.st_size)
