"""Asking an API server, for tests: one request, one answer, nothing believed and nothing hidden.

Plain `http.client` with the test cluster's authority: what a test says about a server must not depend on the code that
it tests.  Every request has a connection of its own, made by `connect`, and ends within `TIMEOUT_S`.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

TIMEOUT_S = 30.0
Document = dict[str, Any]
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


class RefusedError(Exception):
    """The server said no."""

    def __init__(self, status: int, answer: Document) -> None:
        super().__init__(f"{status}: {answer.get('message', answer)}")
        self.status = status
        self.message = str(answer.get("message", ""))


@dataclass(frozen=True, slots=True)
class Api:
    """One server, as one user."""

    server: str
    authority: Path
    token: str
    connect: Callable[..., socket.socket] = socket.create_connection

    def ask(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Document:
        """The answer's document; RefusedError for a status of 400 and above."""
        address = urlsplit(self.server)
        assert address.hostname is not None
        trust = ssl.create_default_context(cafile=str(self.authority))
        connection = http.client.HTTPSConnection(address.hostname, address.port, timeout=TIMEOUT_S, context=trust)
        connection._create_connection = self.connect  # type: ignore[attr-defined]
        try:
            headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind, "Accept": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        is_document = "json" in answer.getheader("Content-Type", "")
        document: Document = json.loads(text) if is_document else {"message": text.decode("utf-8", "replace")}
        if answer.status >= 400:
            raise RefusedError(answer.status, document)
        return document

    def get(self, path: str) -> Document:
        """GET."""
        return self.ask("GET", path)

    def create(self, path: str, body: Mapping[str, object]) -> Document:
        """POST to the folder of a kind."""
        return self.ask("POST", path, body)

    def merge(self, path: str, body: Mapping[str, object]) -> Document:
        """PATCH, as RFC 7386."""
        return self.ask("PATCH", path, body, MERGE)

    def delete(self, path: str) -> Document:
        """DELETE."""
        return self.ask("DELETE", path)

    def apply(self, text: str, is_rehearsal: bool = False) -> list[Document]:
        """Every document of a YAML text, applied by the server as the tests'; a rehearsal changes nothing."""
        return [self._apply(each, is_rehearsal) for each in yaml.safe_load_all(text) if each]

    def _apply(self, document: Document, is_rehearsal: bool) -> Document:
        name = document["metadata"]["name"]
        path = f"{self.folder(document)}/{name}?fieldManager=tests&force=true" + ("&dryRun=All" if is_rehearsal else "")
        return self.ask("PATCH", path, document, APPLY)

    def folder(self, document: Document) -> str:
        """Where objects of this kind lie; the server is asked which plural it has for it."""
        version = document["apiVersion"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        kinds = {each["kind"]: each for each in self.get(root)["resources"] if "/" not in each["name"]}
        kind = kinds[document["kind"]]
        namespace = document["metadata"].get("namespace", "default")
        return f"{root}/namespaces/{namespace}/{kind['name']}" if kind["namespaced"] else f"{root}/{kind['name']}"
