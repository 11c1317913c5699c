"""A register as a Kubernetes Lease: plain HTTPS to the API server, as a pod's service account.

    spec.leaseTransitions     epoch                spec.leaseDurationSeconds, spec.renewTime     lease and last renewal
    spec.holderIdentity       holder, "" = none    annotations gantrymq.io/...                   everything else

A read is a GET without resourceVersion, which the API server answers from the store and not from its cache.  A write
is a merge patch that carries the resourceVersion: labels, owners and annotations of others stay, and a version that
has moved is a conflict.  The API server gives no new version to a patch that changes nothing, so each write carries a
unique number (gantrymq.io/write); without it a renewal within the same instant would not make an older request fail.

The answer to a write means:
    409                                                      conflict
    404, a deletionTimestamp or gantrymq.io/teardown         gone
    5xx, a broken connection or no answer in time            unknown
    anything else                                            nothing was done

A 403 says nothing about the Lease: an API server that has just started answers 403 until it has read its roles.  The
token is read again for each request, because the kubelet replaces it.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count

import aiohttp

from gantry.errors import GantryError, OutcomeUnknownError
from gantry.model import documents
from gantry.replication.record import RegisterRecord, from_fields, to_fields
from gantry.replication.register import (
    Patience,
    RegisterConflictError,
    RegisterDamagedError,
    RegisterGoneError,
    RegisterUnavailableError,
    Seen,
)

_PREFIX = "gantrymq.io/"
_ANNOTATED = ("cluster-uid", "phase", "sync-set", "sync-set-version", "stores", "confirm-floor", "leader-terms")
_BYTES_MAX = 1 << 20
_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


@dataclass(frozen=True, slots=True)
class LeaseAddress:
    """Server and name of the Lease, and the token to authenticate with."""

    server: str  # https://HOST:PORT
    namespace: str
    name: str
    token: Callable[[], str]
    trust: ssl.SSLContext | None = None  # None: plain HTTP, for tests
    labels: Mapping[str, str] = field(default_factory=dict)  # of a new Lease: the admission policy checks them
    writing: Callable[[], str] | None = None  # the token of writes; None: `token`


class LeaseRegister:
    """Implements `register.Register` with a Lease. `writer` is unique to this process.

    timeout_s: of the first requests; it grows for a server that is slow (`register.Patience`).
    """

    def __init__(self, address: LeaseAddress, writer: str, timeout_s: float) -> None:
        self._address = address
        self._writer = writer
        self._numbers = count(1)
        self._reading, self._writing = Patience(timeout_s), Patience(timeout_s)
        self._session: aiohttp.ClientSession | None = None
        self._folder = f"{address.server}/apis/coordination.k8s.io/v1/namespaces/{address.namespace}/leases"

    async def read(self) -> Seen | None:
        """Return record and version; None when there is no Lease."""
        try:
            status, body = await self._ask("GET", f"{self._folder}/{self._address.name}", None)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise RegisterUnavailableError(f"{self._name} cannot be read: {error!r}") from error
        if status == 404:
            return None
        if status != 200:
            raise self._refused(status, body)
        return self._seen(body)

    async def create(self, record: RegisterRecord) -> Seen:
        """Create the Lease; RegisterConflictError when there is one."""
        metadata = {
            "name": self._address.name,
            "labels": dict(self._address.labels),
            "annotations": self._annotations(record),
        }
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": _spec(record)}
        return await self._change("POST", self._folder, lease)

    async def write(self, record: RegisterRecord, version: str) -> Seen:
        """Replace the record, if it still has this version."""
        metadata = {"resourceVersion": version, "annotations": self._annotations(record)}
        patch = {"metadata": metadata, "spec": _spec(record)}
        return await self._change("PATCH", f"{self._folder}/{self._address.name}", patch)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def _name(self) -> str:
        return f"Lease {self._address.namespace}/{self._address.name}"

    async def _change(self, method: str, url: str, wanted: Mapping[str, object]) -> Seen:
        try:
            status, body = await self._ask(method, url, wanted)
        except aiohttp.ClientConnectorError as error:
            raise RegisterUnavailableError(f"{self._name}: {error}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise OutcomeUnknownError(f"{self._name}: {method} was sent, no answer: {error!r}") from error
        if status >= 500:
            raise OutcomeUnknownError(f"{self._name}: {method} was answered with {status}")
        if status not in (200, 201):
            raise self._refused(status, body)
        return self._seen(body)

    async def _ask(self, method: str, url: str, wanted: Mapping[str, object] | None) -> tuple[int, bytes]:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        patience = self._reading if wanted is None else self._writing
        return await patience.wait(self._answer(method, url, wanted))

    async def _answer(self, method: str, url: str, wanted: Mapping[str, object] | None) -> tuple[int, bytes]:
        assert self._session is not None
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        token = self._address.token if wanted is None else self._address.writing or self._address.token
        headers = {"Authorization": f"Bearer {token()}", "Content-Type": kind}
        data = None if wanted is None else json.dumps(wanted).encode()
        trust = self._address.trust if self._address.trust is not None else True
        async with self._session.request(method, url, data=data, headers=headers, ssl=trust) as answer:
            body = b""
            async for chunk in answer.content.iter_chunked(65_536):
                body += chunk
                if len(body) > _BYTES_MAX:
                    raise aiohttp.ClientPayloadError(f"an answer of more than {_BYTES_MAX} bytes")
            return answer.status, body

    def _refused(self, status: int, body: bytes) -> GantryError:
        reason = f"{self._name}: answered with {status}: {body[:200].decode('utf-8', 'replace')}"
        if status == 409:
            return RegisterConflictError(reason)
        if status == 404:
            return RegisterGoneError(reason)
        hint = "; if it continues, check the role of the service account" if status == 403 else ""
        return RegisterUnavailableError(reason + hint)

    def _seen(self, body: bytes) -> Seen:
        try:
            lease = documents.document(json.loads(body), "the Lease")
            metadata = documents.mapping(lease, "metadata")
            annotations = documents.texts(metadata, "annotations")
            version = documents.text(metadata, "resourceVersion")
            if metadata.get("deletionTimestamp") is not None or f"{_PREFIX}teardown" in annotations:
                raise RegisterGoneError(f"{self._name} is being deleted")
            if not version:
                raise ValueError("resourceVersion is missing")
            return Seen(from_fields(_fields(documents.mapping(lease, "spec"), annotations)), version)
        except ValueError as error:
            raise RegisterDamagedError(
                f"{self._name}: {error}; delete it only with all members at hand, the group is then recovered from them"
            ) from error

    def _annotations(self, record: RegisterRecord) -> dict[str, str]:
        fields = to_fields(record)
        return {_PREFIX + name: fields[name] for name in _ANNOTATED} | {
            f"{_PREFIX}write": f"{self._writer}-{next(self._numbers)}"
        }


def _spec(record: RegisterRecord) -> dict[str, object]:
    return {
        "holderIdentity": to_fields(record)["holder"],
        "leaseTransitions": record.epoch,
        "leaseDurationSeconds": record.lease_duration_s,
        "renewTime": datetime.fromtimestamp(record.renewed_ms / 1000, UTC).strftime(_TIME),
    }


def _fields(spec: documents.Document, annotations: Mapping[str, str]) -> dict[str, object]:
    renewed = datetime.strptime(documents.text(spec, "renewTime"), _TIME).replace(tzinfo=UTC)
    known = [name for name in _ANNOTATED if _PREFIX + name in annotations]
    fields: dict[str, object] = {name: annotations[_PREFIX + name] for name in known}
    fields["epoch"] = str(documents.integer(spec, "leaseTransitions"))
    fields["holder"] = documents.text(spec, "holderIdentity")
    fields["lease-duration"] = str(documents.integer(spec, "leaseDurationSeconds"))
    fields["renewed"] = str(round(renewed.timestamp() * 1000))
    return fields
