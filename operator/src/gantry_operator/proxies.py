"""Reading what the proxies of a cluster need, and making the keys that sign their receipt handles.

    CLUSTER-proxy        the Deployment, read by name where there is `spec.proxy`, or a Service from before
    CLUSTER-proxy-keys   field `keys`: one key a line, the newest first.  Made once, when the Service is there, and not
                         changed; Kubernetes deletes it with the Service.  If others deleted it, it is made again as it
                         was where this process has read it, else with a new key
    the user's Secret    `tls.crt` and `tls.key`

The Deployment is applied only when all of that can be used, so running proxies keep what they have.  A fault is told
in the status and stops nothing else.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol

from gantry_operator.api.brokercluster import BrokerCluster, Document, Image, Key
from gantry_operator.api.proxyspec import Proxy
from gantry_operator.desired import proxies as desired
from gantry_operator.desired.labels import digest_of
from gantry_operator.kube import KubeError, folder_in
from gantry_operator.proxyseen import ProxyFault, ProxySeen, proxy_seen
from gantry_operator.refusals import Refusals
from gantry_operator.secretlines import field, lines

KEY_BYTES, KEYS_MAX, COMMENT = 32, 16, b"#"  # as `gantry.gateway.keys` reads them
_PEM = b"-----BEGIN "


class SecretMaker(Protocol):
    """The part of `kube.Kube` that is used here."""

    async def get(self, path: str) -> Document | None: ...
    async def create(self, document: Document) -> bool: ...


class ProxyObjects(NamedTuple):
    """What was found; without `secrets` the Deployment is not applied."""

    seen: ProxySeen | None = None
    there: Mapping[str, Document] = {}  # the Deployment by path
    secrets: str = ""  # digest of keys and certificate; empty: not all of them can be used


class Proxies:
    """Reads the proxies' objects of all clusters, and remembers their keys."""

    def __init__(self, kube: SecretMaker) -> None:
        self._kube = kube
        self._known: dict[Key, bytes] = {}  # the whole field, so that it is made again as it was

    async def look(self, cluster: BrokerCluster, there: Mapping[str, Document], refusals: Refusals) -> ProxyObjects:
        """Read the objects; `there` are the owned objects by path.  Errors go to `refusals`."""
        namespace = cluster.key.namespace
        service = there.get(f"{folder_in('Service', namespace)}/{cluster.proxies}")
        if cluster.proxy is None and service is None:
            return ProxyObjects()
        path = f"{folder_in('Deployment', namespace)}/{cluster.proxies}"
        try:
            deployment = await self._kube.get(path)
            found = {} if deployment is None else {path: deployment}
            if cluster.proxy is None:
                return ProxyObjects(None, found)
            used = await self._secrets(cluster, cluster.proxy, service)
        except KubeError as error:
            refusals.add_apply(f"Deployment {cluster.proxies}", error)
            return ProxyObjects(proxy_seen(cluster, None, service))
        seen = proxy_seen(cluster, deployment, service)
        if isinstance(used, ProxyFault):
            assert seen is not None
            return ProxyObjects(replace(seen, fault=used), found)
        return ProxyObjects(seen, found, used)

    def wanted(self, cluster: BrokerCluster, image: Image, found: ProxyObjects) -> list[Document]:
        """Return the wanted objects, without the Deployment while it cannot be applied."""
        if cluster.proxy is None or found.seen is None:
            return []
        documents = desired.objects(cluster, cluster.proxy)
        if found.secrets:
            shape = desired.ProxyShape(found.seen.replicas, found.secrets)
            documents.append(desired.deployment(cluster, cluster.proxy, image, shape))
        return documents

    def forget(self, key: Key) -> None:
        """Forget everything about a deleted cluster."""
        self._known.pop(key, None)

    async def _secrets(self, cluster: BrokerCluster, proxy: Proxy, service: Document | None) -> str | ProxyFault:
        """Return the digest of keys and certificate, empty while there are no keys; a fault when one is not usable."""
        folder = folder_in("Secret", cluster.key.namespace)
        names = [cluster.proxy_secret, *([proxy.tls_secret] if proxy.tls_secret else [])]
        keys, *rest = await asyncio.gather(*(self._kube.get(f"{folder}/{name}") for name in names))
        if keys is None and service is not None and not cluster.wishes.is_paused:
            keys = await self._make(cluster, str(service["metadata"]["uid"]))
        if fault := _certificate_fault(proxy.tls_secret, rest[0]) if rest else None:
            return fault
        if keys is None:
            return ""
        read = field(keys, desired.KEYS, KEYS_MAX, COMMENT)
        if isinstance(read, str):
            hint = "put the former value back; or delete the Secret, and it is made again"
            said = f"Secret {cluster.proxy_secret}: {read}; no proxy is changed until it can be used; {hint}"
            return ProxyFault("SecretInvalid", said)
        self._known[cluster.key] = read
        certificate = rest[0].get("data", {}) if rest and rest[0] is not None else {}
        files = [certificate.get(each) for each in (desired.CERTIFICATE, desired.PRIVATE_KEY)]
        return digest_of([[line.decode("latin-1") for line in lines(read, COMMENT)], files])

    async def _make(self, cluster: BrokerCluster, service_uid: str) -> Document | None:
        """Make the missing Secret with the keys; None when another process has made it meanwhile."""
        kept = self._known.get(cluster.key) or secrets.token_hex(KEY_BYTES).encode()
        document = desired.secret(cluster, service_uid, base64.b64encode(kept).decode())
        return document if await self._kube.create(document) else None


def _certificate_fault(name: str, secret: Document | None) -> ProxyFault | None:
    where = "spec.proxy.tls.secretName"
    if secret is None:
        said = f"{where}: there is no Secret {name} in this namespace; make it, or take the field away"
        return ProxyFault("SecretMissing", said)
    data = secret.get("data") or {}
    for each in (desired.CERTIFICATE, desired.PRIVATE_KEY):
        try:
            is_pem = _PEM in base64.b64decode(data.get(each) or "")
        except ValueError:
            is_pem = False
        if not is_pem:
            hint = "kubectl create secret tls makes such a Secret"
            said = f"{where}: Secret {name} has no PEM in its field {each}; {hint}"
            return ProxyFault("SecretInvalid", said)
    return None
