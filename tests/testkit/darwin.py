"""macOS as far as this machine can play it: what Python has on Linux and not there is taken away.

`MISSING` names it by module.  What `run` starts lacks all of it, cannot open anything under /proc or
/sys, loads no libc.so.6, and is told that its platform is darwin.  Where macOS *behaves* otherwise is not played:
socket options with another number, fsync that leaves the drive's cache as it is, kqueue.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from types import ModuleType

from testkit.patience import HANG_S

MISSING: dict[ModuleType, str] = {
    os: "sched_getaffinity sched_setaffinity sched_setscheduler sched_getparam O_DIRECT O_PATH O_TMPFILE O_NOATIME "
    "O_LARGEFILE O_RSYNC fdatasync posix_fallocate posix_fadvise POSIX_FADV_DONTNEED POSIX_FADV_WILLNEED eventfd "
    "eventfd_read eventfd_write EFD_CLOEXEC EFD_NONBLOCK memfd_create copy_file_range splice getrandom pidfd_open "
    "pipe2 getxattr setxattr listxattr removexattr getresuid setresuid setns unshare timerfd_create RWF_NOWAIT",
    socket: "TCP_USER_TIMEOUT TCP_KEEPIDLE TCP_QUICKACK TCP_CORK TCP_DEFER_ACCEPT TCP_INFO TCP_LINGER2 TCP_SYNCNT "
    "TCP_WINDOW_CLAMP TCP_CONGESTION SO_PEERCRED SO_PASSCRED SO_BINDTODEVICE SO_INCOMING_CPU SO_MARK SO_PRIORITY "
    "SO_DOMAIN SO_PROTOCOL AF_NETLINK AF_PACKET AF_ALG AF_VSOCK MSG_NOSIGNAL MSG_MORE MSG_ERRQUEUE "
    "SOCK_CLOEXEC SOCK_NONBLOCK",
    select: "epoll EPOLLIN EPOLLOUT EPOLLERR EPOLLHUP EPOLLET EPOLLEXCLUSIVE EPOLLRDHUP EPOLLONESHOT POLLRDHUP",
    signal: "sigwaitinfo sigtimedwait pidfd_send_signal SIGRTMIN SIGRTMAX SIGPOLL SIGPWR SIGSTKFLT SIGCLD",
    fcntl: "F_OFD_GETLK F_OFD_SETLK F_OFD_SETLKW F_SETPIPE_SZ F_GETPIPE_SZ F_ADD_SEALS F_NOTIFY",
    mmap: "MAP_POPULATE MAP_DENYWRITE MAP_EXECUTABLE MADV_HUGEPAGE MADV_DONTFORK MADV_REMOVE MADV_POPULATE_READ",
    time: "CLOCK_BOOTTIME CLOCK_TAI pthread_getcpuclockid",
}
_FOLDERS = ("/proc", "/sys")


def run(program: str, *arguments: str) -> str:
    """Run a program of Python as on macOS and return what it printed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    source = f"from testkit import darwin; darwin.pretend()\n{program}"
    command = [sys.executable, "-W", "error", "-c", source, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def pretend() -> None:
    """Take it all away from this process, which must not have imported anything of gantry."""
    assert not any(name.partition(".")[0] == "gantry" for name in sys.modules), "too late: gantry is imported"
    for module, names in MISSING.items():
        for name in names.split():
            module.__dict__.pop(name, None)  # no Python has all of them
    if sys.version_info >= (3, 13):
        os.process_cpu_count = os.cpu_count  # as it is where there is no sched_getaffinity
    sys.platform = "darwin"
    selectors.DefaultSelector = selectors.PollSelector  # type: ignore[misc,assignment]  # what took epoll at its import
    for name in ("sockets", "sysio"):  # setup.py compiles them on Linux only
        sys.modules[f"gantry.leaves._fast.{name}"] = None  # type: ignore[assignment]
    usual = ctypes.CDLL.__init__

    def loading(self: ctypes.CDLL, name: str | None, *arguments: object, **more: object) -> None:
        if name is not None and ".so" in name:
            raise OSError(f"{name}: macOS has no such library")
        usual(self, name, *arguments, **more)  # type: ignore[arg-type]

    ctypes.CDLL.__init__ = loading  # type: ignore[method-assign,assignment]
    sys.addaudithook(_no_linux_folders)


def _no_linux_folders(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(_FOLDERS):
        raise FileNotFoundError(f"{arguments[0]}: macOS has no such folder")
