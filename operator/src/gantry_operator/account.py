"""The operator's service account: address and certificate of the API server, and a token that the kubelet replaces.

The token is read again for each request.  A caller that may send requests only under a condition gets its own `token`
function, which may refuse: `leader.Election.token` is for the leader only.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Account:
    """A service account, as a pod finds its own."""

    server: str  # https://HOST:PORT
    folder: Path = FOLDER

    def token(self) -> str:
        """Read the present token; OSError when the file cannot be read."""
        return (self.folder / "token").read_text(encoding="utf-8").strip()

    @property
    def namespace(self) -> str:
        """Read the namespace in which the operator runs."""
        return (self.folder / "namespace").read_text(encoding="utf-8").strip()

    @property
    def authority(self) -> Path:
        """Return the path of the certificate authority that signed the server's certificate."""
        return self.folder / "ca.crt"

    def trust(self) -> ssl.SSLContext | None:
        """Return the TLS context for the API server; None for plain HTTP."""
        is_plain = self.server.startswith("http:")
        return None if is_plain else ssl.create_default_context(cafile=str(self.authority))


def of_pod(environment: Mapping[str, str], folder: Path = FOLDER) -> Account:
    """Return the service account of this pod; ValueError outside of a pod."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise ValueError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT: not set; run this in a pod")
    return Account(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}", folder)
