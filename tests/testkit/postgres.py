"""A real PostgreSQL in a process of its own: a cluster in a temporary folder, thrown away at the end.

PostgreSQL refuses to run as root, so root starts it as the user `postgres`, whom the Debian package makes; anybody
else starts it as themselves.  The folder stands directly below the system's temporary folder: those of pytest are
closed to other users.  The port is held by testkit.ports for as long as this process lives.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from testkit.patience import HANG_S
from testkit.ports import free_port

_LOOK_S = 0.1
_SUPERUSER = "gantry"
_SETTINGS = {
    "fsync": "off",  # nobody cuts the power here
    "max_connections": "40",
    "shared_buffers": "16MB",
    "deadlock_timeout": "100ms",
    "unix_socket_directories": "",
    "listen_addresses": "127.0.0.1",
    "autovacuum": "off",
    "max_parallel_workers": "0",
}


class Postgres:
    """One server; `database()` makes an empty database on it and says how to reach it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._databases = 0

    def database(self) -> str:
        """A connection string of a new, empty database."""
        self._databases += 1
        name = f"test_{self._databases}"
        with psycopg.connect(self.conninfo("postgres"), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.conninfo(name)

    def conninfo(self, database: str, port: int | None = None) -> str:
        """The same through another port: of a proxy, perhaps."""
        return f"postgresql://{_SUPERUSER}@127.0.0.1:{port or self.port}/{database}"


@contextlib.contextmanager
def running_postgres(**settings: str) -> Iterator[Postgres]:
    """A server for the length of the block, with other settings than a test's; skips without the Debian package."""
    programs = _programs()
    if programs is None:
        pytest.skip("missing initdb and postgres; install the Debian package postgresql")
    as_whom = _as_whom()
    folder = Path(tempfile.mkdtemp(prefix="gantry-postgres-"))
    try:
        if as_whom:
            shutil.chown(folder, as_whom["user"], as_whom["group"])
        _initialise(programs, folder, as_whom)
        with _served(programs, folder, as_whom, settings) as server:
            yield server
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def _served(
    programs: Path, folder: Path, as_whom: dict[str, Any], settings: Mapping[str, str]
) -> Iterator[Postgres]:
    server = Postgres(free_port())
    given = [part for key, value in {**_SETTINGS, **settings}.items() for part in ("-c", f"{key}={value}")]
    command = [str(programs / "postgres"), "-D", str(folder / "data"), "-p", str(server.port), *given]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=folder, **as_whom
        )
    try:
        _await(server, process, folder / "log")
        yield server
    finally:
        process.send_signal(signal.SIGQUIT)  # at once, its children too
        process.wait(HANG_S)


def _await(server: Postgres, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(int(HANG_S / _LOOK_S)):
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(server.conninfo("postgres"), connect_timeout=10).close()
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_S)
            break
    raise AssertionError(f"PostgreSQL does not serve\n{log.read_text(errors='replace')[-4000:]}")


def _initialise(programs: Path, folder: Path, as_whom: dict[str, Any]) -> None:
    command = [str(programs / "initdb"), "-D", str(folder / "data"), "-U", _SUPERUSER, "--auth=trust", "--no-sync"]
    done = subprocess.run(
        [*command, "--locale=C", "--encoding=UTF8"], cwd=folder, capture_output=True, text=True, check=False, **as_whom
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _programs() -> Path | None:
    """The newest version's folder: Debian keeps the server's programs off the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    beside = shutil.which("initdb")
    return Path(beside).resolve().parent if beside else None


def _as_whom() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    try:
        owner = pwd.getpwnam("postgres")
    except KeyError:
        owner = pwd.getpwnam("nobody")
    return {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
