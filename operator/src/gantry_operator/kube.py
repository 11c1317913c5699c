"""Asking the API server: documents in, documents out, every call bounded.

`kubernetes` brings the connection; what objects look like is not its business here, since most of ours are built as
documents anyway.  Writes are server-side apply under our own name, so fields of others stay theirs.  The token is asked
for again with each request, and may be refused: then nothing is sent.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.client.exceptions import ApiException

from gantry.errors import GantryError
from gantry_operator.account import Account
from gantry_operator.api.brokercluster import FIELD_MANAGER, GROUP, PLURAL, VERSION, Key
from gantry_operator.api.declared import Declared, Kind

TIMEOUT_S = 15.0
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
_KINDS = {  # kind -> version, plural
    "ConfigMap": ("v1", "configmaps"),
    "Event": ("v1", "events"),
    "Lease": ("coordination.k8s.io/v1", "leases"),
    "NetworkPolicy": ("networking.k8s.io/v1", "networkpolicies"),
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims"),
    "Pod": ("v1", "pods"),
    "PodDisruptionBudget": ("policy/v1", "poddisruptionbudgets"),
    "Role": ("rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": ("rbac.authorization.k8s.io/v1", "rolebindings"),
    "Secret": ("v1", "secrets"),
    "Service": ("v1", "services"),
    "ServiceAccount": ("v1", "serviceaccounts"),
    "StatefulSet": ("apps/v1", "statefulsets"),
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

    def __init__(
        self,
        account: Account,
        token: Callable[[], str],
        timeout_s: float = TIMEOUT_S,
        wrote: Callable[[str, str], None] = lambda verb, resource: None,
    ) -> None:
        trust = None if account.trust() is None else str(account.authority)
        self._client = ApiClient(Configuration(host=account.server, ssl_ca_cert=trust))
        self._token = token
        self._timeout_s = timeout_s
        self._wrote = wrote

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
        return await self.create_at(folder_of(document), document)

    async def create_at(self, folder: str, document: Document) -> bool:
        """The same for any folder."""
        try:
            await self._ask("POST", folder, document)
        except KubeError as error:
            if error.status == 409:
                return False
            raise
        return True

    async def apply(self, document: Document) -> Document:
        """Server-side; fields that another manager holds become ours where we name them. Returns the object."""
        return await self._ask(
            "PATCH", path_of(document), document, APPLY, [("fieldManager", FIELD_MANAGER), ("force", "true")]
        )

    async def apply_at(self, path: str, document: Document, manager: str) -> Document:
        """The same for any path, in the name of this field manager."""
        return await self._ask("PATCH", path, document, APPLY, [("fieldManager", manager), ("force", "true")])

    async def merge(self, path: str, change: Document) -> None:
        """RFC 7386; with a resourceVersion in it only on that version."""
        await self._ask("PATCH", path, change, MERGE, [("fieldManager", FIELD_MANAGER)])

    async def delete(self, path: str, uid: str) -> None:
        """This very object, a pod with its own time to end; another one of the same name is left alone."""
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
        try:
            headers = {
                "Accept": "application/json", "Content-Type": kind, "Authorization": f"Bearer {self._token()}",
            }  # fmt: skip
            async with asyncio.timeout(self._timeout_s):
                asked = await self._client.param_serialize(
                    method,
                    path,
                    query_params=query or [],
                    header_params=headers,
                    body=body,
                )
                answer = await self._client.call_api(*asked, _request_timeout=self._timeout_s)
                text = await answer.read()
        except ApiException as error:
            raise KubeError(f"{method} {path}", int(error.status or 0), _said(error.body)) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise KubeError(f"{method} {path}", 0, f"no answer: {error!r}") from error
        except GantryError as error:
            raise KubeError(f"{method} {path}", 0, f"not asked: {error}") from error
        if answer.status >= 400:
            raise KubeError(f"{method} {path}", answer.status, _said(text))
        if method != "GET":
            self._wrote(method.lower(), resource_of(path))
        found = json.loads(text)
        assert isinstance(found, dict)
        return found

    async def __aenter__(self) -> Kube:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()


def folder_in(kind: str, namespace: str) -> str:
    """Where objects of a kind lie."""
    version, plural = _KINDS[kind]
    return f"{'/apis' if '/' in version else '/api'}/{version}/namespaces/{namespace}/{plural}"


def folder_of(document: Mapping[str, Any]) -> str:
    """Where objects of its kind and namespace lie."""
    return folder_in(document["kind"], document["metadata"]["namespace"])


def typed(kind: str, item: Document) -> Document:
    """An item of a list with its version and kind, which the API server leaves out there."""
    return {"apiVersion": _KINDS[kind][0], "kind": kind, **item}


def path_of(document: Mapping[str, Any]) -> str:
    """Where it lies."""
    return f"{folder_of(document)}/{document['metadata']['name']}"


def resource_of(path: str) -> str:
    """/apis/G/V/namespaces/N/KIND/NAME/status -> KIND/status"""
    rest = path.split("/namespaces/", 1)[-1].split("/")[1:]
    return "/".join(rest[::2])


def cluster_path(key: Key) -> str:
    """Of a BrokerCluster."""
    return f"/apis/{GROUP}/{VERSION}/namespaces/{key.namespace}/{PLURAL}/{key.name}"


def declared_folder(kind: Kind, namespace: str) -> str:
    """Where BrokerTopics or ConsumerGroups lie."""
    return f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{kind.value}"


def declared_path(key: Declared) -> str:
    """Of a BrokerTopic or a ConsumerGroup."""
    return f"{declared_folder(key.kind, key.namespace)}/{key.name}"


def lease_path(namespace: str, name: str) -> str:
    """Of a register."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"


def _said(body: Any) -> str:
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")
    try:
        return str(json.loads(text).get("message", text))[:500]
    except (ValueError, AttributeError):
        return text[:500]
