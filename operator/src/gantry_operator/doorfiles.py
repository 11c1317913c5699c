"""The users' Secrets of a cluster's doors: a certificate for proxies, the users of HTTP queues.

Each is read by name, since the operator may not list Secrets.  Proxies read their certificate at a start, so its digest
belongs to the template.  HTTP queues read their users again when they change; a Secret with a wrong line is told all
the same, since a pod that starts with it ends at once.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from gantry.errors import ConfigError
from gantry.queues.users import read_lines
from gantry_operator.api.brokercluster import BrokerCluster, Document
from gantry_operator.api.doorspec import PROXY, DoorKind
from gantry_operator.desired.proxies import CERTIFICATE, PRIVATE_KEY
from gantry_operator.desired.queues import USERS
from gantry_operator.kube import folder_in

_PEM = b"-----BEGIN "


class SecretReader(Protocol):
    """The part of `kube.Kube` that is used here."""

    async def get(self, path: str) -> Document | None: ...


class FileFault(NamedTuple):
    """Why a Secret cannot be used: a condition's reason and message."""

    reason: str
    message: str


async def user_files(kube: SecretReader, cluster: BrokerCluster, kind: DoorKind) -> list[Any] | FileFault:
    """Return what of the door's Secret is read at a start only, for the digest; a fault when it cannot be used."""
    folder = folder_in("Secret", cluster.key.namespace)
    if kind is PROXY:
        name = "" if cluster.proxy is None else cluster.proxy.tls_secret
        found = await kube.get(f"{folder}/{name}") if name else None
        data = {} if found is None else found.get("data") or {}
        fault = _certificate_fault(name, found) if name else None
        return fault or [data.get(each) for each in (CERTIFICATE, PRIVATE_KEY)]
    name = "" if cluster.queues is None else cluster.queues.users_secret
    return _users_fault(name, await kube.get(f"{folder}/{name}")) or []


def _certificate_fault(name: str, secret: Mapping[str, Any] | None) -> FileFault | None:
    where = "spec.proxy.tls.secretName"
    if secret is None:
        said = f"{where}: there is no Secret {name} in this namespace; make it, or take the field away"
        return FileFault("SecretMissing", said)
    data = secret.get("data") or {}
    for each in (CERTIFICATE, PRIVATE_KEY):
        try:
            is_pem = _PEM in base64.b64decode(data.get(each) or "")
        except ValueError:
            is_pem = False
        if not is_pem:
            hint = "kubectl create secret tls makes such a Secret"
            said = f"{where}: Secret {name} has no PEM in its field {each}; {hint}"
            return FileFault("SecretInvalid", said)
    return None


def _users_fault(name: str, secret: Mapping[str, Any] | None) -> FileFault | None:
    where = "spec.queues.users.secretName"
    hint = (
        f"kubectl create secret generic {name} --from-file={USERS}=FILE makes it, with a line ID SECRET for each user"
    )
    if secret is None:
        return FileFault("SecretMissing", f"{where}: there is no Secret {name} in this namespace; {hint}")
    given = (secret.get("data") or {}).get(USERS)
    if given is None:
        return FileFault("SecretInvalid", f"{where}: Secret {name} has no field {USERS}; {hint}")
    try:
        read_lines(base64.b64decode(given, validate=True), f"Secret {name}, field {USERS}")
    except (binascii.Error, ValueError, TypeError):
        return FileFault("SecretInvalid", f"{where}: the field {USERS} of Secret {name} is no base64; {hint}")
    except ConfigError as error:
        return FileFault("SecretInvalid", f"{where}: {error}; running servers keep the users that they have")
    return None
