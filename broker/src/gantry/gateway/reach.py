"""Whether a gateway reaches a broker: what its /readyz says.

It asks one broker every few seconds, the one that answered last first, and when that is silent all others at the same
time.  Any answer counts, a refusal too.  So the look costs one small request, and it is bounded in time and number.

    reached      a broker answered within the last 15 s: a failover of the only group, or a slow answer, changes nothing
    not reached  else.  It looks every second then, so it is ready again soon after a broker is

A gateway that is not ready is healthy all the same: to start it again would help nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from gantry.errors import GantryError, RefusedError
from gantry.transport.tasks import cancelled, watched

log = logging.getLogger(__name__)

_EVERY_S, _AGAIN_S = 5.0, 1.0  # between looks: while brokers answer, and while none does
_LOOK_S = 3.0
_FIRST_S = 1.0  # for the broker that answered last
_GOOD_S = 15.0
_ASKED_MAX = 16  # brokers asked in one look

Masters = Callable[[], Awaitable[Mapping[str, str]]]
Ask = Callable[[str], Awaitable[object]]


class Reach:
    """Looks for brokers that answer; start() once, close() at the end."""

    def __init__(self, masters: Masters, ask: Ask) -> None:
        """masters: addresses by group; ask: sends any request to an address.  Both raise GantryError."""
        self._masters = masters
        self._ask = ask
        self._last = ""  # the broker that answered last
        self._answered_at: float | None = None
        self._failure = "no broker has answered yet"
        self._turn = 0
        self._looking: asyncio.Task[None] | None = None
        self._is_closed = False

    def start(self) -> None:
        """Begin to look."""
        if self._is_closed:
            return
        self._looking = watched(self._keep(), "gantry-gateway-reach", self._begin_again)

    def _begin_again(self, error: BaseException | None) -> None:
        """Look again after an error of this program: a gateway that never looks is never ready."""
        log.error("looking for brokers failed and begins again", exc_info=error)
        self._failure = repr(error)
        asyncio.get_running_loop().call_later(_AGAIN_S, self.start)

    async def close(self) -> None:
        """Look no more."""
        self._is_closed = True
        if self._looking is not None:
            await cancelled([self._looking])

    def verdict(self) -> tuple[bool, str]:
        """Return whether a broker answered lately, and why not."""
        at = self._answered_at
        is_reached = at is not None and asyncio.get_running_loop().time() - at < _GOOD_S
        return is_reached, "a broker answers" if is_reached else f"no broker can be reached: {self._failure}"

    async def look(self) -> bool:
        """Ask brokers until one answers, within some seconds. Return whether one did."""
        try:
            async with asyncio.timeout(_LOOK_S):
                found = await self._answering(list((await self._masters()).values()))
        except TimeoutError:
            found, self._failure = "", f"no answer within {_LOOK_S:g} s"
        except GantryError as error:
            found, self._failure = "", str(error)
        if found:
            self._last, self._answered_at = found, asyncio.get_running_loop().time()
        return bool(found)

    async def _answering(self, addresses: list[str]) -> str:
        """Return a broker that answers; empty when none of those that were asked does."""
        if not addresses:
            self._failure = "the name servers know no master"
            return ""
        if self._last in addresses:
            addresses.remove(self._last)
            try:
                async with asyncio.timeout(_FIRST_S):
                    if await self._answers(self._last):
                        return self._last
            except TimeoutError:
                self._failure = f"{self._last}: no answer within {_FIRST_S:g} s"
        # Others each time, so that in a large cluster some of them that are gone do not hide one that is there.
        self._turn += _ASKED_MAX
        start = self._turn % max(1, len(addresses))
        chosen = (addresses[start:] + addresses[:start])[:_ASKED_MAX]
        asked = [asyncio.ensure_future(self._named(one)) for one in chosen]
        try:
            for next_one in asyncio.as_completed(asked):
                if name := await next_one:
                    return name
        finally:
            await cancelled(asked)
        return ""

    async def _named(self, address: str) -> str:
        return address if await self._answers(address) else ""

    async def _answers(self, address: str) -> bool:
        try:
            await self._ask(address)
        except RefusedError:
            return True
        except GantryError as error:
            self._failure = str(error)
            return False
        return True

    async def _keep(self) -> None:
        was_reached = True
        while True:
            await self.look()
            is_reached, why = self.verdict()
            if is_reached != was_reached:
                log.warning("not ready: %s", why) if not is_reached else log.info("ready: %s", why)
                was_reached = is_reached
            await asyncio.sleep(_EVERY_S if is_reached else _AGAIN_S)
