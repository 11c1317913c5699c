"""Requests to the API server: documents in, documents out, each with a time limit.

`kubernetes` is used for the connection only, not for its models, since most of our objects are built as documents
anyway.  Writes are server-side apply with our own field manager, so other managers keep their fields.  The token
function is called for each request and may raise: then nothing is sent.
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
    "Deployment": ("apps/v1", "deployments"),
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
    """The API server refused a request, or did not answer; `status` 0: no answer."""

    def __init__(self, what: str, status: int, reason: str) -> None:
        super().__init__(f"{what}: {status} {reason}" if status else f"{what}: {reason}")
        self.status = status
        self.reason = reason


class Kube:
    """The client of one API server; an asynchronous context manager.  All methods raise KubeError."""

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
        """Return the object at this path; None when it does not exist."""
        try:
            return await self._ask("GET", path)
        except KubeError as error:
            if error.status == 404:
                return None
            raise

    async def listed(self, folder: str, labels: Mapping[str, str]) -> list[Document]:
        """Return the objects of a folder with all of these labels."""
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        answer = await self._ask("GET", folder, query=[("labelSelector", selector)])
        return list(answer["items"])

    async def create(self, document: Document) -> bool:
        """Create an object; return False when it exists already."""
        return await self.create_at(folder_of(document), document)

    async def create_at(self, folder: str, document: Document) -> bool:
        """Like `create`, for any folder."""
        try:
            await self._ask("POST", folder, document)
        except KubeError as error:
            if error.status == 409:
                return False
            raise
        return True

    async def apply(self, document: Document) -> Document:
        """Apply an object server-side and return it; fields of other managers become ours where we name them."""
        return await self._ask(
            "PATCH", path_of(document), document, APPLY, [("fieldManager", FIELD_MANAGER), ("force", "true")]
        )

    async def apply_at(self, path: str, document: Document, manager: str) -> Document:
        """Like `apply`, for any path and with this field manager."""
        return await self._ask("PATCH", path, document, APPLY, [("fieldManager", manager), ("force", "true")])

    async def merge(self, path: str, change: Document) -> None:
        """Change an object by a JSON merge patch (RFC 7386); with a resourceVersion in it only on that version."""
        await self._ask("PATCH", path, change, MERGE, [("fieldManager", FIELD_MANAGER)])

    async def delete(self, path: str, uid: str) -> None:
        """Delete the object with this uid, a pod with its grace period; another object of the name is not deleted."""
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
    """Return the path of a namespace's objects of a kind."""
    version, plural = _KINDS[kind]
    return f"{'/apis' if '/' in version else '/api'}/{version}/namespaces/{namespace}/{plural}"


def folder_of(document: Mapping[str, Any]) -> str:
    """Return the path of objects of this document's kind and namespace."""
    return folder_in(document["kind"], document["metadata"]["namespace"])


def typed(kind: str, item: Document) -> Document:
    """Add version and kind to an item of a list; the API server leaves them out there."""
    return {"apiVersion": _KINDS[kind][0], "kind": kind, **item}


def path_of(document: Mapping[str, Any]) -> str:
    """Return the path of this object."""
    return f"{folder_of(document)}/{document['metadata']['name']}"


def resource_of(path: str) -> str:
    """Return the kind in a path: `/apis/G/V/namespaces/N/KIND/NAME/status` -> `KIND/status`."""
    rest = path.split("/namespaces/", 1)[-1].split("/")[1:]
    return "/".join(rest[::2])


def cluster_path(key: Key) -> str:
    """Return the path of a BrokerCluster."""
    return f"/apis/{GROUP}/{VERSION}/namespaces/{key.namespace}/{PLURAL}/{key.name}"


def declared_folder(kind: Kind, namespace: str) -> str:
    """Return the path of a namespace's BrokerTopics or ConsumerGroups."""
    return f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{kind.value}"


def declared_path(key: Declared) -> str:
    """Return the path of a BrokerTopic or a ConsumerGroup."""
    return f"{declared_folder(key.kind, key.namespace)}/{key.name}"


def lease_path(namespace: str, name: str) -> str:
    """Return the path of a Lease, such as the register of a group."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"


def _said(body: Any) -> str:
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")
    try:
        return str(json.loads(text).get("message", text))[:500]
    except (ValueError, AttributeError):
        return text[:500]
