"""The connection by which kopf watches, and when each kind was last heard of.

A watch that is alive says something each minute, if only a bookmark; a watch that died silently says nothing, and that
is what `Heard` is for.  kopf reads a watch chunk by chunk from the body of an answer, so that is where one listens.

The token is read again for each request, since the kubelet replaces it.  kopf has nothing to write here: whatever would
change something is refused before it is sent, so that a replica that does not lead cannot write by mistake.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import aiohttp

from gantry.clock import Clock
from gantry_operator.account import Account


class Heard:
    """The instant of the last news, by watch; `kinds` (their plurals) are watched, each by so many watches.

    Those `if_known` are listened to as well, once they were heard of.
    """

    def __init__(self, clock: Clock, kinds: Sequence[str], watches: int = 1, if_known: Sequence[str] = ()) -> None:
        self._clock = clock
        self._kinds = frozenset(kinds)
        self._listened = self._kinds.union(if_known)
        self._watches = watches
        self._born_at = clock.monotonic()
        self._at: dict[str, float] = {}

    def note(self, path: str) -> None:
        """Something came, from the watch of this folder."""
        if kind_of(path) in self._listened:
            self._at[path] = self._clock.monotonic()

    def ages_s(self) -> dict[str, float]:
        """Of each kind that was ever heard of: since the quietest of its watches spoke."""
        now = self._clock.monotonic()
        ages: dict[str, float] = {}
        for path, at in self._at.items():
            ages[kind_of(path)] = max(now - at, ages.get(kind_of(path), 0.0))
        return ages

    @property
    def has_begun(self) -> bool:
        """Whether every watch was heard of."""
        return sum(kind_of(path) in self._kinds for path in self._at) >= len(self._kinds) * self._watches

    @property
    def quietest_s(self) -> float:
        """The age of the quietest watch; one that has not begun yet is as old as we are."""
        ages = list(self.ages_s().values())
        return max(ages if self.has_begun else [*ages, self._clock.monotonic() - self._born_at])


def kind_of(path: str) -> str:
    """.../namespaces/N/pods -> pods"""
    return path.rsplit("/", 1)[-1]


def session(account: Account, heard: Heard) -> aiohttp.ClientSession:
    """For reading; anyone who gets it closes it."""

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
    """A stream whose every chunk is noted."""

    def __init__(self, content: aiohttp.StreamReader, heard: Heard, path: str) -> None:
        self._content = content
        self._heard = heard
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """As aiohttp's."""
        async for chunk in self._content.iter_chunked(size):
            self._heard.note(self._path)
            yield chunk
