"""Interruptions at every step: the n-th system call of a blocking client's sockets, the n-th wait of a coroutine.

    sockets = Sockets(monkeypatch, "before", raise_interrupt)
    ...                     # use the client undisturbed
    sockets.arm(7)
    ...                     # interrupted at the eighth step, if there are so many: sockets.came

A step of a socket may be interrupted before it, behind it, and, where it sends, when half of the bytes have left.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import pytest

MOMENTS = ("before", "half", "behind")


class Interrupt(BaseException):
    """What a signal handler or a time limit may raise anywhere."""


class Sockets:
    """Stands in for `socket.create_connection` and counts what is done with the sockets that it gives out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, moment: str, act: Callable[[], None]) -> None:
        self.came = False  # whether the step was reached
        self.made: list[_Counted] = []
        self._left = -1
        self._moment = moment
        self._act = act
        self._connect = socket.create_connection
        monkeypatch.setattr(socket, "create_connection", self._connected)

    def arm(self, at: int) -> None:
        """Interrupt the step behind so many others."""
        self._left = at

    def step(self, call: Callable[[], Any], halves: tuple[Callable[[], Any], Callable[[], Any]] | None = None) -> Any:
        """Do one call, or the part of it that an interruption leaves."""
        is_it = self._left == 0
        self._left -= 1
        if is_it and self._moment == "before":
            self._interrupt()
        if is_it and self._moment == "half" and halves is not None:
            halves[0]()
            self._interrupt()
            return halves[1]()
        found = call()
        if is_it and self._moment != "before":
            self._interrupt()
        return found

    def _interrupt(self) -> None:
        self.came = True
        self._act()

    def _connected(self, *arguments: Any) -> _Counted:
        made: list[socket.socket] = []
        try:
            self.step(lambda: made.append(self._connect(*arguments)))
        except BaseException:
            for one in made:
                one.close()  # nobody else ever had it
            raise
        self.made.append(_Counted(made[0], self))
        return self.made[-1]


class _Counted:
    """One socket, as far as the blocking client uses it."""

    def __init__(self, made: socket.socket, sockets: Sockets) -> None:
        self._made = made
        self._step = sockets.step

    def settimeout(self, seconds: float) -> None:
        self._step(lambda: self._made.settimeout(seconds))

    def setsockopt(self, *arguments: int) -> None:
        self._step(lambda: self._made.setsockopt(*arguments))

    def sendall(self, data: bytes) -> None:
        one, two = data[: len(data) // 2], data[len(data) // 2 :]
        self._step(lambda: self._made.sendall(data), (lambda: self._made.sendall(one), lambda: self._made.sendall(two)))

    def recv(self, count: int) -> bytes:
        found: bytes = self._step(lambda: self._made.recv(count))
        return found

    def fileno(self) -> int:
        return self._made.fileno()

    def close(self) -> None:
        self._made.close()


class Cancelled:
    """Awaits a coroutine and cancels the task at its n-th wait (0 is the first); `came` tells whether it got there."""

    def __init__(self, work: Coroutine[Any, Any, Any], at: int) -> None:
        self.came = False
        self._work = work
        self._left = at

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        answer: Callable[[], Any] = lambda: next(steps)  # noqa: E731
        while True:
            try:
                waits_for = answer()
            except StopIteration as end:
                return end.value
            if self._left == 0:
                self.came = True
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            self._left -= 1
            try:
                sent = yield waits_for
            except BaseException as error:  # noqa: BLE001
                answer = lambda error=error: steps.throw(error)  # type: ignore[misc]  # noqa: E731
            else:
                answer = lambda sent=sent: steps.send(sent)  # type: ignore[misc]  # noqa: E731
