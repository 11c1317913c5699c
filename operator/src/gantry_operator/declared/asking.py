"""Requests to the masters of broker groups; refusals and missing answers are values.

A group that does not answer must not delay changes on the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from gantry.clock import Clock
from gantry.errors import GantryError, OutcomeUnknownError, RefusedError
from gantry.wire.codes import ResponseCode
from gantry_operator.declared.outcome import Fault
from gantry_operator.declared.territory import BrokerGroup

T = TypeVar("T")

SILENT_S = 10.0
NOBODY_LEADS = "nobody leads it; it is asked again"
SILENT = "its master does not answer; it is asked again"
NOT_NOW = "its master does not serve now; it is asked again"
# The request itself is wrong there: an older broker, a name that it keeps for itself, a number out of its bounds.
_FINAL = {ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.MESSAGE_ILLEGAL, ResponseCode.INVALID_PARAMETER}


class Asking:
    """Shared by all objects: a master that did not answer gets no further request for `SILENT_S`.

    Thousands of objects may ask the same master; when it hangs, only a few of them wait for it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._silent_until_s: dict[str, float] = {}  # by address

    async def all(
        self, places: Sequence[BrokerGroup], ask: Callable[[BrokerGroup], Awaitable[T]]
    ) -> tuple[dict[BrokerGroup, T], list[Fault]]:
        """Ask all masters at the same time; return the answers, and the faults of those without one."""
        found = await asyncio.gather(*(self.one(place, ask) for place in places))
        given = {place: each for place, each in zip(places, found, strict=True) if not isinstance(each, Fault)}
        return given, [each for each in found if isinstance(each, Fault)]

    async def one(self, place: BrokerGroup, ask: Callable[[BrokerGroup], Awaitable[T]]) -> T | Fault:
        """Return the result of `ask` for one master, or the fault."""
        if not place.address:
            return Fault(place.short, False, NOBODY_LEADS)
        if self._silent_until_s.get(place.address, 0.0) > self._clock.monotonic():
            return Fault(place.short, False, SILENT)
        self._silent_until_s.pop(place.address, None)
        try:
            return await ask(place)
        except RefusedError as error:
            is_final = error.code in _FINAL
            return Fault(place.short, is_final, f"its master refuses: {error.remark}" if is_final else NOT_NOW)
        except OutcomeUnknownError:
            self._silent_until_s[place.address] = self._clock.monotonic() + SILENT_S
            return Fault(place.short, False, SILENT)
        except GantryError:
            return Fault(place.short, False, SILENT)
