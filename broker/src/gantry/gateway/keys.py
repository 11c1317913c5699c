"""The keys that sign handles: lines of a file, which all proxies (or queue servers) of a cluster have.

    9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08     signs
    60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752     was used before; its handles are still good

Each line is a text of at least 16 characters; blank lines and lines that begin with # are ignored.  To replace the key:

    1  append the new key as the last line, everywhere; restart the proxies one after the other
    2  move it to the first line, everywhere; restart again
    3  remove the old key after seven days: by then no receipt handle or transaction id of it is in use

The file is read once, when the process starts.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from gantry.errors import ConfigError

_CHARACTERS_MIN = 16
_KEYS_MAX = 16
_NEW_BYTES = 32
_FILE_BYTES_MAX = 64 << 10


def read(path: Path) -> list[bytes]:
    """Return the keys of a file, the one that signs first; ConfigError when there is none, or it cannot be read."""
    try:
        with path.open("rb") as file:
            text = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path}: the keys of handles cannot be read: {error.strerror}") from error
    lines = [line.strip() for line in text.splitlines()]
    found = [line for line in lines if line and not line.startswith(b"#")]
    if not found or len(found) > _KEYS_MAX or len(text) > _FILE_BYTES_MAX:
        raise ConfigError(f"{path}: {len(found)} keys of handles, expected 1 to {_KEYS_MAX}, one a line")
    for number, line in enumerate(found, 1):
        if len(line) < _CHARACTERS_MIN:
            raise ConfigError(
                f"{path}: key {number} has {len(line)} characters, at least {_CHARACTERS_MIN} are needed; "
                "make one with: openssl rand -hex 32"
            )
    return found


def read_or_make(path: Path) -> list[bytes]:
    """Return the keys of a file that is made with a new key if it is missing; ConfigError when that fails."""
    if not path.exists():
        fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_hex(_NEW_BYTES) + "\n")
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):  # another process was faster: its key counts
                os.link(fresh, path)
            fresh.unlink()
        except OSError as error:
            raise ConfigError(f"{path}: a key for handles cannot be made there: {error.strerror}") from error
    return read(path)
