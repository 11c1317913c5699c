"""`gantry_operator.kube.Kube` over a store in memory: the same paths, documents and errors, and no socket.

`Mortal` dies at its n-th write, before the server has seen it or after: anyone who holds it does nothing more.
"""

from __future__ import annotations

import copy

from gantry_operator.kube import Document, Kube, KubeError
from testkit.kube.fakestore import MERGE, NoAnswerError, Request, StatusError, Store


class KilledError(BaseException):
    """The process is gone; nothing that catches errors catches this."""


class FakeKube(Kube):
    """Everything that Kube does goes through `_ask`, and that is all that differs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def _ask(
        self, method: str, path: str, body: Document | None = None, kind: str = "application/json",
        query: list[tuple[str, str]] | None = None,
    ) -> Document:  # fmt: skip
        try:
            return self._answer(method, path, body, kind, dict(query or []))
        except StatusError as error:
            raise KubeError(f"{method} {path}", error.status, error.message) from error
        except NoAnswerError as error:
            raise KubeError(f"{method} {path}", 0, "no answer") from error

    def _answer(self, method: str, path: str, body: Document | None, kind: str, query: dict[str, str]) -> Document:
        if method != "GET":
            return self._store.write(Request(method, path, copy.deepcopy(body or {}), kind or MERGE))
        rest = path.split("/namespaces/", 1)[-1].split("/")
        if len(rest) > 2:
            return self._store.get(path)
        return {"items": self._store.listed(path, query.get("labelSelector", ""))}


class Mortal(FakeKube):
    """Dies at its write number `at` (from 0); `writes` says how many it began."""

    def __init__(self, store: Store, at: int | None = None, is_done: bool = True) -> None:
        super().__init__(store)
        self.writes = 0
        self._at = at
        self._is_done = is_done

    def _answer(self, method: str, path: str, body: Document | None, kind: str, query: dict[str, str]) -> Document:
        if method == "GET":
            return super()._answer(method, path, body, kind, query)
        self.writes += 1
        dies = self._at is not None and self.writes > self._at
        if dies and not self._is_done:
            raise KilledError
        answer = super()._answer(method, path, body, kind, query)
        if dies:
            raise KilledError
        return answer
