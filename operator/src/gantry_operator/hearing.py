"""The HTTP session by which kopf watches, and when each watch last received something.

A live watch receives something each minute, at least a bookmark.  A watch that died silently receives nothing; `Heard`
detects this.  kopf reads a watch chunk by chunk from the body of an answer, so each chunk is noted there.

The token is read again for each request, since the kubelet replaces it.  kopf writes nothing here: requests that would
change something are refused before they are sent, so that a replica that does not lead cannot write by mistake.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import aiohttp

from gantry.clock import Clock
from gantry_operator.account import Account


class Heard:
    """When each watch last received something; `kinds` (their plurals) are watched, each by so many watches.

    The kinds of `if_known` count only after their watch received something.
    """

    def __init__(self, clock: Clock, kinds: Sequence[str], watches: int = 1, if_known: Sequence[str] = ()) -> None:
        self._clock = clock
        self._kinds = frozenset(kinds)
        self._listened = self._kinds.union(if_known)
        self._watches = watches
        self._born_at = clock.monotonic()
        self._at: dict[str, float] = {}

    def note(self, path: str) -> None:
        """Record that the watch of this folder received something."""
        if kind_of(path) in self._listened:
            self._at[path] = self._clock.monotonic()

    def ages_s(self) -> dict[str, float]:
        """Return, by kind, the seconds since its quietest watch received something.

        A watch that never received anything counts since our start; of the kinds of `if_known` it is left out.
        """
        now = self._clock.monotonic()
        ages = {kind: now - self._born_at for kind, begun in self._begun().items() if begun < self._watches}
        for path, at in self._at.items():
            ages[kind_of(path)] = max(now - at, ages.get(kind_of(path), 0.0))
        return ages

    @property
    def has_begun(self) -> bool:
        """Return whether every watch has received something."""
        return min(self._begun().values()) >= self._watches

    @property
    def quietest_s(self) -> float:
        """Return the seconds since the quietest watch received something; since our start for one without anything."""
        return max(self.ages_s().values())

    def _begun(self) -> dict[str, int]:
        """Return, by kind, how many of its watches have received something."""
        kinds = [kind_of(path) for path in self._at]
        return {kind: kinds.count(kind) for kind in self._kinds}


def kind_of(path: str) -> str:
    """Return the last part of a path: `.../namespaces/N/pods` -> `pods`."""
    return path.rsplit("/", 1)[-1]


def session(account: Account, heard: Heard) -> aiohttp.ClientSession:
    """Open a session that can only read; the caller closes it."""

    async def ours(request: aiohttp.ClientRequest, pass_on: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        if request.method != "GET":
            raise aiohttp.ClientError(f"{request.method} {request.url}: kopf watches and writes nothing")
        request.headers["Authorization"] = f"Bearer {account.token()}"
        answer = await pass_on(request)
        if answer.status == 200:
            path = request.url.path
            if request.url.query.get("watch") == "true":
                heard.note(path)
                answer.content = cast(aiohttp.StreamReader, _Listened(answer.content, heard, path))
        return answer

    connector = aiohttp.TCPConnector(limit=0, ssl=account.trust() or True)
    return aiohttp.ClientSession(connector=connector, middlewares=(ours,))


class _Listened:
    """A body stream that notes each chunk in `Heard`."""

    def __init__(self, content: aiohttp.StreamReader, heard: Heard, path: str) -> None:
        self._content = content
        self._heard = heard
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield chunks like aiohttp's `StreamReader.iter_chunked`, and note each of them."""
        async for chunk in self._content.iter_chunked(size):
            self._heard.note(self._path)
            yield chunk
