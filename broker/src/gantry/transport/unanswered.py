"""The requests of one connection that wait for their answer, and one timer for all of them.

A timer for each request would cost more than the request.  The timer stands at the first time-out or before; when it
comes, everything whose time is up fails.  Time-outs a moment apart share a sweep, so one may be late by `_SWEEP_S`.
"""

from __future__ import annotations

import asyncio

from gantry.errors import OutcomeUnknownError
from gantry.leaves import frames
from gantry.wire.command import Request

_SWEEP_S = 0.005  # between two sweeps, each of which looks at all requests that wait

Answer = asyncio.Future[frames.Command]


class Unanswered:
    """Requests by their opaque number; belongs to one connection."""

    __slots__ = ("_loop", "_opaque", "_peer", "_timer", "_timer_at", "_waiting", "oneways_read")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.oneways_read = 0  # at least so many one-way requests were read by the peer
        self._loop = loop
        self._opaque = -1
        self._peer = "?"
        # Until when an answer counts, the same in seconds from the request on, and how many one-way requests had left
        # before: the answer shows that the peer has read those.
        self._waiting: dict[int, tuple[Answer, float, float, int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def next_opaque(self) -> int:
        """Return a number for another request."""
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        return self._opaque

    def add(self, opaque: int, answer: Answer, timeout_s: float, oneways: int, peer: str) -> None:
        """Expect an answer within the time; `oneways` one-way requests were sent before."""
        until = self._loop.time() + timeout_s
        self._peer = peer
        self._waiting[opaque] = answer, until, timeout_s, oneways
        if self._timer is None or until < self._timer_at:
            self._set_timer(until)

    def answered(self, reply: frames.Command) -> None:
        """Hand over a reply; one that comes too late, or was never asked for, has no effect."""
        waiting = self._waiting.pop(reply.opaque, None)
        if waiting is not None:
            answer, _, _, oneways = waiting
            self.oneways_read = max(self.oneways_read, oneways)
            if not answer.done():
                answer.set_result(reply)

    def take(self, request: Request) -> bool:
        """Return whether this is an answer; it is handed over then."""
        if not isinstance(request, frames.Command) or not request.flag & 1:
            return False
        self.answered(request)
        return True

    def lost(self) -> None:
        """Fail all: the connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        for answer, _, _, _ in waiting.values():
            if not answer.done():
                answer.set_exception(OutcomeUnknownError(f"{self._peer}: connection gone before the answer came"))

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._time_out)

    def _time_out(self) -> None:
        self._timer = None
        now = max(self._loop.time(), self._timer_at)  # the loop calls timers early, by its clock's resolution
        late = [opaque for opaque, (_, until, _, _) in self._waiting.items() if until <= now]
        for opaque in late:
            answer, _, timeout_s, _ = self._waiting.pop(opaque)
            if not answer.done():
                answer.set_exception(OutcomeUnknownError(f"{self._peer}: no answer within {timeout_s:g} s"))
        if self._waiting:
            following = min(until for _, until, _, _ in self._waiting.values())
            self._set_timer(max(following, now + _SWEEP_S))
