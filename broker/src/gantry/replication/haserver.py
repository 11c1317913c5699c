"""The server of `/ha/v1`: aiohttp around `haproof` and `haapi`.

A request is read up to a bound, authenticated and parsed before it reaches the member.  Each answer to an authenticated
request is signed.  The time of the check starts from the wall clock and continues by the monotonic clock, so a jump of
the wall clock makes no old request valid again.

How many connections there are, and how long each may take, is bounded by `transport.visits`; each carries one request.

Imported only where it is needed: aiohttp is larger than all other code of a broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from secrets import token_hex
from typing import Protocol

from aiohttp import web

from gantry.clock import Clock
from gantry.errors import ConfigError, StoreError
from gantry.model import documents
from gantry.replication.haapi import (
    BODY_BYTES_MAX,
    LIFE,
    NUDGE,
    ORDERS,
    SHOWN,
    STATE,
    Answer,
    Asked,
    read,
    refuse,
    why_not_sealed,
)
from gantry.replication.haproof import PROOF, Door, Keys, Pass, Said, Turned, prove_answer
from gantry.replication.hastate import MemberState
from gantry.transport.visits import Visit, Visits

log = logging.getLogger(__name__)
_LIFE_BYTES, _LIFE_CHARS = 8, 16
_REQUEST_S = 10.0  # to send a body of 64 KiB, and for the disk to take a promise
_LIFE_S = 660.0  # of a whole call; the longest is a handover, which may wait 600 s for a slave


class SealedMember(Protocol):
    """The member that the server answers for."""

    def state(self) -> MemberState:
        """Return the member's present state."""
        ...

    def more(self) -> Mapping[str, object]:
        """Return further fields of the state document for people; no decision depends on them."""
        ...

    def settings(self) -> Mapping[str, object]:
        """Return the present configuration by dotted key."""
        ...

    async def seal(self, epoch: int) -> Answer | None:
        """Promise the epoch durably and stop in lower ones. None: done. StoreError when the disk fails."""
        ...


class OrderHandler(Protocol):
    """The orders that a member with a register carries out."""

    async def carry_out(self, call: str, asked: documents.Document) -> Answer | None:
        """Carry out one of `haapi.ORDERS`. None: done, and the state is the answer. ValueError for a malformed order,
        StoreError when the disk fails.
        """
        ...


class HaServer:
    """The server; loop thread only. start() and close() are called once each."""

    def __init__(self, member: SealedMember, keys: Keys, clock: Clock, orders: OrderHandler | None = None) -> None:
        self._member = member
        self._orders = orders
        self._door = Door(keys)
        self._life = token_hex(_LIFE_BYTES)  # orders name it: after a restart no nonces are known
        self._clock = clock
        self._ahead_ms = clock.now_ms() - round(clock.monotonic() * 1000)
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._visits = Visits(self._heard, _LIFE_S)

    async def start(self, host: str, port: int) -> int:
        """Listen. Return the port; ConfigError when the address cannot be used."""
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.router.add_route("*", "/{path:.*}", self._asked)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        try:
            self._listener = await self._visits.listen(host, port)
        except OSError as error:
            reason = error.strerror or str(error)
            await self.close()
            raise ConfigError(f"cannot listen on {host}:{port}: {reason}; set network.ha_api_port, -1: none") from error
        return int(self._listener.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and close all connections."""
        if self._listener is not None:
            self._listener.close()
        if self._runner is not None:
            await self._runner.cleanup()
        await self._visits.close()

    def _heard(self, visit: Visit) -> None:
        assert self._runner is not None and self._runner.server is not None, "it listens after the set-up"
        visit.hand_over(self._runner.server())

    def _now_ms(self) -> int:
        return self._ahead_ms + round(self._clock.monotonic() * 1000)

    async def _asked(self, request: web.Request) -> web.Response:
        unsigned = self._door.check_head(request.headers)  # no body is awaited for those
        if unsigned is not None:
            return _page(refuse(unsigned.status, unsigned.reason))
        try:
            async with asyncio.timeout(_REQUEST_S):
                body = await request.read()
        except (TimeoutError, web.HTTPRequestEntityTooLarge):
            return _page(refuse(413, f"a body of more than {BODY_BYTES_MAX} bytes, or slower than {_REQUEST_S:g} s"))
        said = Said(request.method, request.raw_path, body)
        now_ms = self._now_ms()
        known = self._door.check(said, request.headers, now_ms)
        if isinstance(known, Turned):
            more = {} if known.proven is None else {"timeMs": now_ms}
            return _page(refuse(known.status, known.reason, **more), known.proven)
        self._visits.keep(request.transport)
        return _page(await self._answer(said), known)

    async def _answer(self, said: Said) -> Answer:
        state = self._member.state()
        asked = read(said, state)
        if isinstance(asked, Answer):
            return asked
        if asked.call == STATE:
            return self._standing()
        if asked.call == SHOWN:
            return Answer(200, {"config": self._member.settings()})
        if asked.call in ORDERS:
            return self._why_not(asked, state) or await self._carry_out(asked)
        late = why_not_sealed(state, asked.epoch)
        if late is not None:
            return late
        try:
            # Shielded: the disk may have the promise by now, so it is completed even when the sender has disconnected.
            late = await asyncio.shield(asyncio.ensure_future(self._member.seal(asked.epoch)))
        except StoreError as error:
            log.error("epoch %d could not be promised: %s", asked.epoch, error)
            return refuse(503, f"the promise could not be kept on the disk: {error}")
        return late or self._standing()

    def _why_not(self, asked: Asked, state: MemberState) -> Answer | None:
        """Return the refusal of an order that was made for another epoch or an earlier process; None: carry it out."""
        newest, life = max(state.epoch, state.promise), documents.text(asked.body, LIFE)
        if asked.call == NUDGE or (asked.epoch == newest and life == self._life):
            return None
        if not life:
            return refuse(409, f"the order names no life of this member; update the sender of {asked.call}")
        known = f"epoch {asked.epoch} and life {life[:_LIFE_CHARS]}"
        return refuse(409, f"meant for {known}, this member has {newest} and {self._life}; ask for its state again")

    async def _carry_out(self, asked: Asked) -> Answer:
        if self._orders is None:
            return refuse(409, f"{asked.call} is for members of a group with a register; this one has none")
        try:
            # Shielded: an order that was begun is completed even when its sender has disconnected.
            answer = await asyncio.shield(asyncio.ensure_future(self._orders.carry_out(asked.call, asked.body)))
        except ValueError as error:
            return refuse(400, f"the request cannot be read: {error}")
        except StoreError as error:
            log.error("%s could not be carried out: %s", asked.call, error)
            return refuse(503, f"the disk did not take it: {error}")
        return answer or self._standing()

    def _standing(self) -> Answer:
        return Answer(200, {**self._member.more(), **self._member.state().to_document(), LIFE: self._life})


def _page(answer: Answer, proven: Pass | None = None) -> web.Response:
    body = answer.encode()
    headers = {} if proven is None else {PROOF: prove_answer(proven.key, proven.nonce, answer.status, body)}
    page = web.Response(status=answer.status, body=body, content_type="application/json", headers=headers)
    page.force_close()
    return page
