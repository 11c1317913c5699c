"""An event loop in a thread of its own, for programs that have none.

It belongs to the process that started it: after a fork the child has neither the thread nor its connections, so the
child's calls are refused.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_END_S = 30.0


class LoopThread:
    """Started and ended once; its methods may be called by any thread but its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pid = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def open(self, begin: Callable[[], Coroutine[Any, Any, object]], patience_s: float) -> None:
        """Start the thread and wait for what begins there; RuntimeError when it was started before."""
        self._start()
        try:
            self.wait(begin(), patience_s)
        except BaseException:
            self._end()
            raise

    def close(self, finish: Callable[[], Coroutine[Any, Any, object]], patience_s: float) -> None:
        """Refuse further work, wait for what ends there, and end the thread; nothing in a forked process."""
        is_here = self._pid == os.getpid()
        self._pid = 0
        if not is_here:
            return
        try:
            self.wait(finish(), patience_s)
        finally:
            self._end()

    def _start(self) -> None:
        if self._thread is not None:
            raise RuntimeError(f"the {self._name} was entered before; make a new one")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"gantry-{self._name}", daemon=True)
        self._thread.start()
        self._pid = os.getpid()

    def check_open(self) -> None:
        """Raise RuntimeError where nothing would be executed: before the start, after the end, after a fork."""
        if self._pid != os.getpid():
            raise RuntimeError(f"the {self._name} is not open in this process; enter it after the fork, and once")

    def wait(self, work: Coroutine[Any, Any, T], patience_s: float) -> T:
        """Return what a coroutine returns, run on the loop; TimeoutError after the patience, and it is cancelled."""
        assert self._loop is not None, "it was started"
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(patience_s)
        except BaseException:
            future.cancel()
            raise

    def soon(self, call: Callable[..., object], *arguments: object) -> bool:
        """Call a function on the loop soon; False when the loop has ended."""
        assert self._loop is not None, "it was started"
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            return False
        return True

    def _end(self) -> None:
        self._pid = 0
        assert self._loop is not None and self._thread is not None, "it was started"
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_S)
        if not self._thread.is_alive():
            self._loop.close()
