"""Asking members by HTTP: `coordinator.Members` for `/ha/v1`.

    200                          the state, if the answer proves that it is from a member and made for this question
    409, 423, 421, 501 ...       no answer: the next round asks again; `why` keeps the reason, for people
    a closed port, no answer within `timeout_s`, an answer without proof        the same

A missing answer is never taken for a refusal.  The member may have promised, and only its answer was lost; it answers
the same question again in the same way.  A member whose clock differs names its own time in a proven refusal.  It is
asked once more with that time, and the difference is remembered for its ordinal.

Each request opens its own connection: there is about one a second, and a connection that a restarted member has
forgotten cannot be used.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping

import aiohttp
from yarl import URL

from gantry.clock import Clock
from gantry.model import documents
from gantry.replication.haapi import (
    BODY_BYTES_MAX,
    HANDOVER,
    LIFE,
    NUDGE,
    SEAL,
    MemberId,
    ask_config,
    ask_state,
    order,
)
from gantry.replication.haproof import NONCE_BYTES, PROOF, Keys, Said
from gantry.replication.hastate import MemberState, read_state

_CONNECTIONS_MAX = 64
_REASON_CHARS_MAX = 300


class AskedMembers:
    """Implements `failover.coordinator.Members`.

    address: returns the present HOST:PORT of an ordinal, an empty text when it is not known.
    gone: returns the ordinals whose process is known to have ended.
    """

    def __init__(
        self,
        cluster_uid: str,
        group: str,
        address: Callable[[int], str],
        keys: Keys,
        clock: Clock,
        timeout_s: float = 1.0,
        gone: Callable[[], frozenset[int]] = frozenset,
    ) -> None:
        self.why: dict[int, str] = {}  # by ordinal: why the last request to it had no usable answer
        self.chance: random.Random = random.SystemRandom()
        self._target = MemberId(cluster_uid, group, 0)
        self._address = address
        self._keys = keys
        self._clock = clock
        self._timeout_s = timeout_s
        self.gone = gone
        self._ahead_ms: dict[int, int] = {}
        self._session: aiohttp.ClientSession | None = None

    async def state(self, ordinal: int) -> MemberState | None:
        """Return the member's state (`GET /ha/v1/state`); None when there was no usable answer."""
        return await self._state_of(ordinal, ask_state(self._target._replace(ordinal=ordinal)))

    async def seal(self, ordinal: int, epoch: int) -> MemberState | None:
        """Ask the member to promise the epoch (`POST /ha/v1/seal`). Return its state; None when it has not promised."""
        state = await self._state_of(ordinal, order(SEAL, self._target._replace(ordinal=ordinal), epoch))
        if state is not None and state.promise < epoch:
            self.why[ordinal] = f"it answered a seal of epoch {epoch} with the promise {state.promise}"
            return None
        return state

    async def nudge(self, ordinal: int) -> None:
        """Send `POST /ha/v1/nudge`. A failure is only noted in `why`."""
        await self._try(ordinal, order(NUDGE, self._target._replace(ordinal=ordinal), 0))

    async def hand_over(self, ordinal: int, target: int, within_s: float) -> bool:
        """Ask the master `ordinal` by `POST /ha/v1/handover` to make `target` the master. False: not done, see
        `why`.
        """
        more = {"target": target, "deadlineMs": round(within_s * 1000)}
        return await self._order(ordinal, HANDOVER, within_s + self._timeout_s, more) is not None

    async def look(self, ordinal: int) -> documents.Document | None:
        """Return the member's whole state document, with the fields for people; None when there was no usable
        answer.
        """
        return await self._try(ordinal, ask_state(self._target._replace(ordinal=ordinal)))

    async def config(self, ordinal: int) -> documents.Document | None:
        """Return the member's present configuration by dotted key; None when there was no usable answer."""
        answer = await self._try(ordinal, ask_config(self._target._replace(ordinal=ordinal)))
        return None if answer is None else documents.mapping(answer, "config")

    async def order(self, ordinal: int, path: str, **more: object) -> documents.Document | None:
        """Send one of `haapi.ORDERS`. Return the answer; None when it was not carried out, see `why`."""
        return await self._order(ordinal, path, 0.0, more)

    async def _order(
        self, ordinal: int, path: str, within_s: float, more: Mapping[str, object]
    ) -> documents.Document | None:
        """Send an order with the epoch and life from the member's present state; the member refuses any others."""
        state = await self.look(ordinal)
        if state is None:
            return None
        try:
            epoch = max(documents.integer(state, "epoch"), documents.integer(state, "promise"))
            life = documents.text(state, LIFE)
        except ValueError as error:
            self.why[ordinal] = f"its state is invalid: {error}"
            return None
        said = order(path, self._target._replace(ordinal=ordinal), epoch, **{LIFE: life, **more})
        return await self._try(ordinal, said, within_s)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _state_of(self, ordinal: int, said: Said) -> MemberState | None:
        source = await self._try(ordinal, said)
        if source is None:
            return None
        try:
            state = read_state(source)
        except ValueError as error:
            self.why[ordinal] = f"its state is invalid: {error}"
            return None
        self.why.pop(ordinal, None)
        return state

    async def _try(self, ordinal: int, said: Said, within_s: float = 0.0) -> documents.Document | None:
        """Return the document of an answer with status 200; otherwise None, with the reason in `why`."""
        address = self._address(ordinal)
        if not address:
            self.why[ordinal] = "its address is not known"
            return None
        try:
            async with asyncio.timeout(within_s or self._timeout_s):
                status, body = await self._ask(ordinal, address, said)
                if status == 401 and self._learns_time(ordinal, body):
                    status, body = await self._ask(ordinal, address, said)
            if status == 200:
                return _read(body)
            reason = documents.text(_read(body), "error")
        except TimeoutError:
            reason = f"{address}: no answer within {within_s or self._timeout_s:g} s"
        except (aiohttp.ClientError, OSError, ValueError, RecursionError) as error:
            reason = f"{address}: {error}"
        self.why[ordinal] = reason[:_REASON_CHARS_MAX]
        return None

    async def _ask(self, ordinal: int, address: str, said: Said) -> tuple[int, bytes]:
        """Return status and body of an answer with a valid proof; ValueError for an answer without one."""
        if self._session is None:
            connector = aiohttp.TCPConnector(force_close=True, limit=_CONNECTIONS_MAX)
            self._session = aiohttp.ClientSession(connector=connector)
        nonce = self.chance.getrandbits(8 * NONCE_BYTES).to_bytes(NONCE_BYTES, "big")
        headers = self._keys.ask(said, nonce, self._clock.now_ms() + self._ahead_ms.get(ordinal, 0))
        url = URL(f"http://{address}{said.path}", encoded=True)  # the same bytes that the proof covers
        async with self._session.request(
            said.method, url, data=said.body or None, headers=headers, allow_redirects=False
        ) as answer:
            body = await _body(answer)
            proof = answer.headers.get(PROOF, "")
            if not self._keys.is_answer(nonce, answer.status, body, proof):
                raise ValueError(f"answered with {answer.status} and no proof of the secret: {_start_of(body)}")
            return answer.status, body

    def _learns_time(self, ordinal: int, body: bytes) -> bool:
        """Take over the member's time from a proven refusal. Return False when the refusal names no time."""
        its_ms = documents.integer(_read(body), "timeMs", -1)
        if its_ms < 0:
            return False
        self._ahead_ms[ordinal] = its_ms - self._clock.now_ms()
        return True


def _read(body: bytes) -> documents.Document:
    return documents.document(json.loads(body), "the answer")


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    body = b""
    async for chunk in answer.content.iter_chunked(16_384):
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise ValueError(f"an answer of more than {BODY_BYTES_MAX} bytes")
    return body


def _start_of(body: bytes) -> str:
    return body[:100].decode("utf-8", "replace")
