"""A bare Debian in a folder, and commands that run in it as root.

It has what README asks for, git, make and Python, and nothing else: what a developer's machine was once given by hand
is not there.  Of this machine it gets only what reaches the registries (`SETTINGS`, `_FILES`, its certificates), and a
folder of downloads that all runs share; apt locks its own, so runs of one suite take turns.  Commands have mounts and
processes of their own, so nothing outlives them; the network is the machine's.  Standard library only: `.ci/run` begins
here, before any environment is made.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from testkit import archives, debian

CHECKOUT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("git", "make", "python3", "ca-certificates")
_CACHE = CHECKOUT / ".cache" / "bare"
# Which variables of this machine say how registries are reached; a folder of packages or a toolchain is not among them.
SETTINGS = re.compile(
    r"(?i)(https?|no|all)_proxy|.*_CA_(CERTS?|BUNDLE|PATH)|SSL_CERT_(FILE|DIR)|NODE_EXTRA_CA_CERTS|GIT_SSL_CAINFO"
    r"|PIP_(INDEX_URL|CERT|PROXY|TRUSTED_HOST|DEFAULT_TIMEOUT)|UV_(DEFAULT_INDEX|INDEX_URL)|npm_config_\w+"
    r"|GO(PROXY|SUMDB|NOSUMDB|FLAGS)|MAVEN_(OPTS|ARGS)|JAVA_TOOL_OPTIONS"
)
_FILES = ("/etc/pip.conf", "/etc/resolv.conf", "/etc/hosts", "~/.config/pip/pip.conf", "~/.npmrc", "~/.m2/settings.xml")
_CERTIFICATES = Path("/usr/local/share/ca-certificates")
_HOME = "/root"
_DOWNLOADS = {
    "archives-{suite}": "/var/cache/apt/archives",
    "cache": f"{_HOME}/.cache",
    "npm": f"{_HOME}/.npm",
    "m2": f"{_HOME}/.m2/repository",
}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# As in an image of a container: Debian's packages start no service when they are installed.
_NO_SERVICES = "#!/bin/sh\nexit 101\n"
_MOUNTS = """
set -eu
mount --make-rprivate /
mount -t proc proc "$ROOT/proc"
mount --rbind /sys "$ROOT/sys"
mount --rbind /dev "$ROOT/dev"
mount --bind "$CHECKOUT" "$ROOT/checkout"
mount -o remount,ro,bind "$ROOT/checkout"
for pair in $DOWNLOADS; do mount --bind "${pair%%:*}" "$ROOT${pair#*:}"; done
"""


class BareRoot:
    """One such system; `run` runs a line of shell in it."""

    def __init__(self, folder: Path, suite: str) -> None:
        self.folder = folder
        self._suite = suite

    def run(self, line: str, *, timeout_s: float, log: Path | None = None) -> int:
        """Run the line with bash in its home folder, output on ours or to `log`; return its exit code (late: 124)."""
        pairs = [f"{_downloads(name, self._suite)}:{inside}" for name, inside in _DOWNLOADS.items()]
        outside = {"PATH": _PATH, "ROOT": str(self.folder), "CHECKOUT": str(CHECKOUT), "DOWNLOADS": " ".join(pairs)}
        given = {name: value for name, value in os.environ.items() if SETTINGS.fullmatch(name)}
        given |= {"HOME": _HOME, "PATH": _PATH, "LANG": "C.UTF-8", "TERM": "dumb"}
        words = " ".join(shlex.quote(f"{name}={value}") for name, value in given.items())
        enter = f'exec chroot "$ROOT" /usr/bin/env -i {words} /bin/bash -c {shlex.quote(f"cd {_HOME} && {line}")}'
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-c", _MOUNTS + enter]
        with contextlib.ExitStack() as open_files:
            to = open_files.enter_context(log.open("ab")) if log else None
            process = subprocess.Popen(command, env=outside, stdin=subprocess.DEVNULL, stdout=to, stderr=to)
            try:
                return process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return 124
            finally:
                process.kill()
                process.wait()


@contextlib.contextmanager
def bare_root(suite: str, *, keep: bool = False) -> Iterator[BareRoot]:
    """Make a new root of Debian `suite` ("bookworm", "trixie") for the length of the block; `keep` leaves it there."""
    folder = Path(tempfile.mkdtemp(prefix=f"gantry-bare-{suite}-"))
    try:
        with _turn(suite):
            yield _unpack_root(folder, suite)
    finally:
        if keep:
            print(f"bare: its root is left in {folder}", flush=True)
        else:
            shutil.rmtree(folder)


@contextlib.contextmanager
def _turn(suite: str) -> Iterator[None]:
    """Wait for the other runs of this suite: a second apt finds its folder of archives locked, and installs nothing."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / f"{suite}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"bare: waits for another run on {suite}", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _unpack_root(folder: Path, suite: str) -> BareRoot:
    """Unpack a new system into the folder, with what reaches the registries."""
    with tarfile.open(_base(suite)) as base:
        archives.unpack(base, folder, is_trusted=True)
    for name, inside in _DOWNLOADS.items():
        _downloads(name, suite).mkdir(parents=True, exist_ok=True)
        (folder / inside[1:]).mkdir(parents=True, exist_ok=True)
    (folder / "checkout").mkdir()
    _carry_settings(folder)
    root = BareRoot(folder, suite)
    assert root.run("update-ca-certificates >/dev/null 2>&1", timeout_s=60) == 0, "its certificates cannot be made"
    return root


def _downloads(name: str, suite: str) -> Path:
    """Return the folder of one kind of downloads; packages of different suites have nothing in common."""
    return _CACHE / name.format(suite=suite)


def _base(suite: str) -> Path:
    """Return the tar of a new system, made once."""
    made = _CACHE / f"{suite}.tar"
    if not made.exists():
        began = time.monotonic()
        folder = _CACHE / f"{suite}.half"
        debian.make_root(suite, PACKAGES, folder)
        unfinished = made.with_suffix(".unfinished")
        with tarfile.open(unfinished, "w") as tar:
            tar.add(folder, ".")
        shutil.rmtree(folder)
        unfinished.rename(made)
        print(f"bare: {suite} by debootstrap after {time.monotonic() - began:.0f} s", flush=True)
    return made


def _carry_settings(folder: Path) -> None:
    """Copy what reaches the registries: certificates, and settings of pip, npm and Maven."""
    for path in _CERTIFICATES.glob("*.crt"):
        to = folder / str(path)[1:]
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)
    for name in _FILES:
        path = Path(name).expanduser()
        to = folder / (name.replace("~", _HOME).removeprefix("/"))
        if path.is_file():
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, to)
    policy = folder / "usr/sbin/policy-rc.d"
    policy.write_text(_NO_SERVICES)
    policy.chmod(0o755)
