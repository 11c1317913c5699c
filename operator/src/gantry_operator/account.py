"""Who we are to the API server: where it is, whom to trust, and a token that the kubelet replaces while we run.

The token is read again for each request.  Anyone who may ask only under a condition is given a `token` of its own,
which refuses: `leader.Election.token` is for the leader alone.
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
        """As it is now."""
        return (self.folder / "token").read_text(encoding="utf-8").strip()

    @property
    def namespace(self) -> str:
        """Where we run."""
        return (self.folder / "namespace").read_text(encoding="utf-8").strip()

    @property
    def authority(self) -> Path:
        """Who vouches for the server."""
        return self.folder / "ca.crt"

    def trust(self) -> ssl.SSLContext | None:
        """None: plain HTTP."""
        is_plain = self.server.startswith("http:")
        return None if is_plain else ssl.create_default_context(cafile=str(self.authority))


def of_pod(environment: Mapping[str, str], folder: Path = FOLDER) -> Account:
    """As Kubernetes tells each pod; ValueError outside of one."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise ValueError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT: not set; run this in a pod")
    return Account(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}", folder)
