"""What the pods of gRPC proxies have beside what all doors have: workers and a certificate; pure."""

from __future__ import annotations

from gantry_operator.api.doorspec import Proxy
from gantry_operator.desired.doors import FOLDER, DoorPod

CERTIFICATE, PRIVATE_KEY = "tls.crt", "tls.key"  # fields of the user's Secret; the template has the digest of both
_SCRATCH = "/tmp"  # of the socket between a proxy's own parts, and of the certificate that it makes itself


def pod(proxy: Proxy) -> DoorPod:
    """Return the proxies' own part."""
    options = {"workers": str(proxy.workers)}
    if not proxy.tls_secret:  # clients for Java and Go use TLS unless they are told not to, and verify nothing
        return DoorPod(options | {"tls-self-signed": f"{_SCRATCH}/tls"}, {}, _SCRATCH)
    options |= {"tls-cert": f"{FOLDER}/{CERTIFICATE}", "tls-key": f"{FOLDER}/{PRIVATE_KEY}"}
    return DoorPod(options, {proxy.tls_secret: (CERTIFICATE, PRIVATE_KEY)}, _SCRATCH)
