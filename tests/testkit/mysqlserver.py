"""A real MariaDB or MySQL in a process of its own: a data folder in a temporary folder, thrown away at the end.

MariaDB is Debian's package mariadb-server.  MySQL is in no stable Debian: `make mysql` puts Debian unstable's
mysql-server-core (9.7 in November 2026, what followed MySQL 8) with its libraries into the cache folder, 560 MB by
debootstrap, from where it runs with its own loader.  Without it there are no tests on MySQL.

Both refuse to run as root without being told to, and are told.  The port is held by testkit.ports.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pymysql
import pytest

from testkit import debian
from testkit.patience import HANG_S
from testkit.ports import free_port

LOADER = "lib64/ld-linux-x86-64.so.2"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
# One core, little memory, and nothing that must survive a power cut.
_SETTINGS = (
    "--bind-address=127.0.0.1",
    "--skip-log-bin",
    "--innodb-buffer-pool-size=128M",
    "--innodb-flush-log-at-trx-commit=2",
    "--max-connections=60",
    "--innodb-lock-wait-timeout=50",
    "--character-set-server=utf8mb4",
)
_LOOK_S = 0.1


class MysqlServer:
    """One server; `database()` makes an empty database on it, `connect` opens a connection."""

    def __init__(self, name: str, port: int, process: subprocess.Popen[bytes]) -> None:
        self.name = name
        self.port = port
        self.process = process
        self._databases = 0

    def database(self) -> str:
        """The name of a new, empty database."""
        self._databases += 1
        name = f"test_{self._databases}"
        with contextlib.closing(self.connect("")) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
        return name

    def connect(self, database: str, **more: Any) -> Any:
        """A connection of PyMySQL."""
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", database=database or None, charset="utf8mb4", **more
        )


def mysql_root() -> Path:
    """The folder into which Debian unstable's MySQL is put."""
    cache = os.environ.get("GANTRY_CACHE")
    return (Path(cache) if cache else Path(__file__).resolve().parent.parent.parent / ".cache") / "mysql"


def has_mysql() -> bool:
    """Whether it is there: tests on it are made only then, since CI fails for what is missing."""
    return (mysql_root() / "usr/sbin/mysqld").exists()


@contextlib.contextmanager
def running_mariadb() -> Iterator[MysqlServer]:
    """A MariaDB for the length of the block; skips without the Debian package."""
    program, maker = shutil.which("mariadbd", path=_PATH), shutil.which("mariadb-install-db", path=_PATH)
    if program is None or maker is None:
        pytest.skip("missing mariadbd; install the Debian package mariadb-server")
    with _folder() as folder:
        _made([maker, "--no-defaults", f"--datadir={folder}/data", "--auth-root-authentication-method=normal"], folder)
        with _served("mariadb", [program], folder) as server:
            yield server


@contextlib.contextmanager
def running_mysql() -> Iterator[MysqlServer]:
    """A MySQL for the length of the block; it has to be in the cache folder."""
    root = mysql_root()
    assert has_mysql(), f"there is no MySQL in {root}; make mysql"
    program = [str(root / LOADER), "--library-path", str(root / LIBRARIES), str(root / "usr/sbin/mysqld")]
    shares = (f"--lc-messages-dir={root}/usr/share/mysql", f"--plugin-dir={root}/usr/lib/mysql/plugin")
    shares += ("--mysqlx=OFF", "--secure-file-priv=NULL")
    with _folder() as folder:
        make = ("--no-defaults", f"--datadir={folder}/data", *shares, "--initialize-insecure", *_user())
        _made([*program, *make], folder)
        with _served("mysql", program, folder, *shares) as server:
            yield server


_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/bin"))


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="gantry-mysql-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _user() -> tuple[str, ...]:
    return ("--user=root",) if os.geteuid() == 0 else ()


def _made(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


@contextlib.contextmanager
def _served(name: str, program: Sequence[str], folder: Path, *more: str) -> Iterator[MysqlServer]:
    port = free_port()
    options = [f"--datadir={folder}/data", f"--port={port}", f"--socket={folder}/socket", f"--pid-file={folder}/pid"]
    command = [*program, "--no-defaults", *options, *_SETTINGS, *_user(), *more]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=folder
        )
    server = MysqlServer(name, port, process)
    try:
        _await(server, folder / "log")
        yield server
    finally:
        process.kill()
        process.wait(HANG_S)


def _await(server: MysqlServer, log: Path) -> None:
    for _ in range(int(HANG_S / _LOOK_S)):
        with contextlib.suppress(pymysql.err.OperationalError):
            server.connect("").close()
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.process.wait(_LOOK_S)
            break
    raise AssertionError(f"{server.name} does not serve\n{log.read_text(errors='replace')[-4000:]}")


def main() -> int:
    """Put MySQL into the cache folder, unless it is there."""
    root = mysql_root()
    if has_mysql():
        return 0
    half = root.with_name("mysql.half")
    debian.make_root("sid", ("mysql-server-core",), half)
    half.rename(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
