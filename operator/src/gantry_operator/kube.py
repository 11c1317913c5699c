"""Asking the API server: documents in, documents out, every call bounded.

`kubernetes` brings the connection, the service account and its tokens, which it reads anew; what objects look like is
not its business here, since most of ours are built as documents anyway.  Writes are server-side apply under our own
name, so fields of others stay theirs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.config import load_incluster_config

from gantry_operator.api.brokercluster import GROUP, PLURAL, VERSION, Key

FIELD_MANAGER = "gantry-operator"
TIMEOUT_S = 15.0
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
_PLURALS = {
    "ConfigMap": "configmaps",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "Secret": "secrets",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
    "StatefulSet": "statefulsets",
}

Document = dict[str, Any]


class KubeError(Exception):
    """The API server said no, or nothing; `status` 0: nothing."""

    def __init__(self, what: str, status: int, reason: str) -> None:
        super().__init__(f"{what}: {status} {reason}" if status else f"{what}: {reason}")
        self.status = status
        self.reason = reason


class Kube:
    """One API server; an asynchronous context manager."""

    def __init__(self) -> None:
        self._configuration = Configuration()
        load_incluster_config(client_configuration=self._configuration)
        self._client = ApiClient(self._configuration)

    @property
    def server(self) -> str:
        """https://HOST:PORT"""
        return str(self._configuration.host)

    async def get(self, path: str) -> Document | None:
        """None when there is none."""
        try:
            return await self._ask("GET", path)
        except KubeError as error:
            if error.status == 404:
                return None
            raise

    async def listed(self, folder: str, labels: Mapping[str, str]) -> list[Document]:
        """All with these labels."""
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        answer = await self._ask("GET", folder, query=[("labelSelector", selector)])
        return list(answer["items"])

    async def create(self, document: Document) -> bool:
        """False when there is one already."""
        try:
            await self._ask("POST", folder_of(document), document)
        except KubeError as error:
            if error.status == 409:
                return False
            raise
        return True

    async def apply(self, document: Document) -> None:
        """Server-side; fields that somebody else holds become ours where we name them."""
        await self._ask(
            "PATCH", path_of(document), document, APPLY, [("fieldManager", FIELD_MANAGER), ("force", "true")]
        )

    async def merge(self, path: str, change: Document) -> None:
        """RFC 7386; with a resourceVersion in it only on that version."""
        await self._ask("PATCH", path, change, MERGE, [("fieldManager", FIELD_MANAGER)])

    async def delete_pod(self, path: str, uid: str) -> None:
        """This very pod, with its own time to end; another one of the same name is left alone."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        try:
            await self._ask("DELETE", path, options)
        except KubeError as error:
            if error.status not in (404, 409):
                raise

    async def _ask(
        self, method: str, path: str, body: Document | None = None, kind: str = "application/json",
        query: list[tuple[str, str]] | None = None,
    ) -> Document:  # fmt: skip
        headers = {"Accept": "application/json", "Content-Type": kind}
        try:
            async with asyncio.timeout(TIMEOUT_S):
                asked = await self._client.param_serialize(
                    method,
                    path,
                    query_params=query or [],
                    header_params=headers,
                    body=body,
                    auth_settings=["BearerToken"],
                )
                answer = await self._client.call_api(*asked, _request_timeout=TIMEOUT_S)
                text = await answer.read()
        except ApiException as error:
            raise KubeError(f"{method} {path}", int(error.status or 0), _said(error.body)) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise KubeError(f"{method} {path}", 0, f"no answer: {error!r}") from error
        if answer.status >= 400:
            raise KubeError(f"{method} {path}", answer.status, _said(text))
        found = json.loads(text)
        assert isinstance(found, dict)
        return found

    async def __aenter__(self) -> Kube:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()


def folder_of(document: Mapping[str, Any]) -> str:
    """Where objects of its kind and namespace lie."""
    version = document["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{document['metadata']['namespace']}/{_PLURALS[document['kind']]}"


def path_of(document: Mapping[str, Any]) -> str:
    """Where it lies."""
    return f"{folder_of(document)}/{document['metadata']['name']}"


def cluster_path(key: Key) -> str:
    """Of a BrokerCluster."""
    return f"/apis/{GROUP}/{VERSION}/namespaces/{key.namespace}/{PLURAL}/{key.name}"


def lease_path(namespace: str, name: str) -> str:
    """Of a register."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"


def _said(body: Any) -> str:
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")
    try:
        return str(json.loads(text).get("message", text))[:500]
    except (ValueError, AttributeError):
        return text[:500]
