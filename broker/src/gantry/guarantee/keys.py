"""Keys in Redis that recognise most duplicates before the database is asked.  Never needed, never believed.

    SET <prefix><group>:<message id> <owner> NX PX <hold>     taken by this process, for as long as an effect may last
    the same key with the value 'done', PX <keep>              the effect is there
    deleted by its owner                                       the effect failed

What the answers mean:

    ours, unknown   the database decides, as without keys; an error of Redis is `unknown`
    done            if the database says so too; if not, it was restored, and decides
    elsewhere       the database is only asked whether the effect is there; if it is not, the message comes again, at
                    the latest with success when the key has expired.  A key that does not expire within `hold_s` (the
                    clock of Redis went back, its expiry was removed) is `unknown`

After an error Redis is left alone for `PAUSE_S`, so that one that hangs does not hold up every message.
redis-py's clients fit (`redis.Redis`, `redis.asyncio.Redis`); they need a `socket_timeout`.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from typing import Any

from gantry.guarantee.consuming import Arrival, KeyState

log = logging.getLogger(__name__)

PAUSE_S = 5.0
_DONE = "done"
_OWN = "if redis.call('get', KEYS[1]) == ARGV[1] then "
_RELEASE = _OWN + "return redis.call('del', KEYS[1]) end return 0"
_KEEP = _OWN + "return redis.call('set', KEYS[1], 'done', 'PX', ARGV[2]) end return 0"


class _Names:
    def __init__(self, client: Any, prefix: str, hold_s: float, keep_s: float) -> None:
        if hold_s <= 0 or keep_s <= 0:
            raise ValueError(f"hold_s {hold_s:g} and keep_s {keep_s:g} have to be above 0")
        pool = getattr(client, "connection_pool", None)
        options = getattr(pool, "connection_kwargs", {"socket_timeout": hold_s})
        if not options.get("socket_timeout"):
            raise ValueError("the client has no socket_timeout; a Redis that hangs would stop the group, set 1 s")
        self._client = client
        self._prefix = prefix
        self._hold_ms, self._keep_ms = max(1, int(hold_s * 1000)), max(1, int(keep_s * 1000))
        self._process = secrets.token_hex(8)
        self._silent_until = 0.0

    def _name(self, arrival: Arrival) -> str:
        return f"{self._prefix}{arrival.consumer_group}:{arrival.message_id}"

    def _owner(self, arrival: Arrival) -> str:
        # A second delivery to the same process is another one: two tasks must not both have the key.
        place = f"{arrival.topic}:{arrival.broker}:{arrival.queue_id}:{arrival.queue_offset}"
        return f"{self._process}.{os.getpid()}:{place}"

    def _expires(self, left_ms: int) -> bool:
        """Whether a key that another process holds delays its message by `hold_s` at most; -1: it never expires."""
        return 0 <= left_ms <= self._hold_ms

    def _is_silent(self) -> bool:
        return time.monotonic() < self._silent_until

    def _failed(self, error: Exception) -> KeyState:
        self._silent_until = time.monotonic() + PAUSE_S
        log.warning("no keys from Redis for %g s, the database decides: %s: %s", PAUSE_S, type(error).__name__, error)
        return KeyState.UNKNOWN


class RedisKeys(_Names):
    """With a blocking client."""

    def __init__(self, client: Any, *, prefix: str = "gantry:", hold_s: float = 60.0, keep_s: float = 86_400.0) -> None:
        super().__init__(client, prefix, hold_s, keep_s)

    def take(self, arrival: Arrival) -> KeyState:
        """Take the key of a message that came."""
        if self._is_silent():
            return KeyState.UNKNOWN
        try:
            name = self._name(arrival)
            if self._client.set(name, self._owner(arrival), nx=True, px=self._hold_ms):
                return KeyState.OURS
            found = _meaning(self._client.get(name))
            if found is KeyState.ELSEWHERE and not self._expires(self._client.pttl(name)):
                return KeyState.UNKNOWN
            return found
        except Exception as error:  # noqa: BLE001  of the user's client: the database decides
            return self._failed(error)

    def keep(self, arrival: Arrival, held: KeyState) -> None:
        """The effect is there: keep the key, so that duplicates are recognised."""
        self._eval(_KEEP, arrival, held, self._keep_ms)

    def release(self, arrival: Arrival, held: KeyState) -> None:
        """The effect failed: delete the key, if it is still ours."""
        self._eval(_RELEASE, arrival, held)

    def _eval(self, script: str, arrival: Arrival, held: KeyState, *more: int) -> None:
        if held is KeyState.OURS:
            try:
                self._client.eval(script, 1, self._name(arrival), self._owner(arrival), *more)
            except Exception as error:  # noqa: BLE001  of the user's client: the database decides
                self._failed(error)


class AsyncRedisKeys(_Names):
    """With a client whose methods are coroutines."""

    def __init__(self, client: Any, *, prefix: str = "gantry:", hold_s: float = 60.0, keep_s: float = 86_400.0) -> None:
        super().__init__(client, prefix, hold_s, keep_s)

    async def take(self, arrival: Arrival) -> KeyState:
        """Take the key of a message that came."""
        if self._is_silent():
            return KeyState.UNKNOWN
        try:
            name = self._name(arrival)
            if await self._client.set(name, self._owner(arrival), nx=True, px=self._hold_ms):
                return KeyState.OURS
            found = _meaning(await self._client.get(name))
            if found is KeyState.ELSEWHERE and not self._expires(await self._client.pttl(name)):
                return KeyState.UNKNOWN
            return found
        except Exception as error:  # noqa: BLE001  of the user's client: the database decides
            return self._failed(error)

    async def keep(self, arrival: Arrival, held: KeyState) -> None:
        """The effect is there: keep the key, so that duplicates are recognised."""
        await self._eval(_KEEP, arrival, held, self._keep_ms)

    async def release(self, arrival: Arrival, held: KeyState) -> None:
        """The effect failed: delete the key, if it is still ours."""
        await self._eval(_RELEASE, arrival, held)

    async def _eval(self, script: str, arrival: Arrival, held: KeyState, *more: int) -> None:
        if held is KeyState.OURS:
            try:
                await self._client.eval(script, 1, self._name(arrival), self._owner(arrival), *more)
            except Exception as error:  # noqa: BLE001  of the user's client: the database decides
                self._failed(error)


def _meaning(value: object) -> KeyState:
    if value is None:
        return KeyState.UNKNOWN  # it expired in between
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    return KeyState.DONE if text == _DONE else KeyState.ELSEWHERE
