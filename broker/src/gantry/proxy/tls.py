"""Certificates: given as files, or made for a first start.

`gantry standalone` makes a certificate of its own when none is given, because RocketMQ's clients for Java and Go use
TLS unless they are told not to, and check no certificate by default.  `openssl` makes it, which any Debian with CA
certificates has; without that program there is plain text only, and the log says so.
"""

from __future__ import annotations

import logging
import os
import ssl
import subprocess
from pathlib import Path

from gantry.errors import ConfigError

log = logging.getLogger(__name__)

_VALID_DAYS = "3650"
_MAKE_S = 30.0
_NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1"


def context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return how TLS is served with a certificate and its private key, PEM both; ConfigError when that fails."""
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.minimum_version = ssl.TLSVersion.TLSv1_2
    found.set_alpn_protocols(["h2"])
    try:
        found.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{certificate} and {key}: no certificate with its private key: {reason}") from error
    return found


def self_signed(folder: Path) -> ssl.SSLContext | None:
    """Return how TLS is served with a certificate that is made in this folder once; None without openssl."""
    certificate, key = folder / "proxy-cert.pem", folder / "proxy-key.pem"
    if certificate.exists() and key.exists():
        try:
            return context(certificate, key)
        except ConfigError as error:  # a power cut may have left them empty, or of two makings
            log.warning("the certificate that was made before cannot be used, another one is made: %s", error)
    return _made(folder, certificate, key)


def _made(folder: Path, certificate: Path, key: Path) -> ssl.SSLContext | None:
    fresh = [path.with_name(f"{path.name}.{os.getpid()}.tmp") for path in (certificate, key)]
    command = [
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-days", _VALID_DAYS, "-subj", "/CN=gantry", "-addext", _NAMES,
        "-out", str(fresh[0]), "-keyout", str(fresh[1]),
    ]  # fmt: skip
    try:
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(command, capture_output=True, timeout=_MAKE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("clients get plain text only: openssl cannot make a certificate: %s; give --tls-cert", error)
        return None
    if done.returncode:
        text = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        log.warning("clients get plain text only: openssl: %s; give --tls-cert", "".join(text))
        return None
    fresh[1].chmod(0o600)
    fresh[1].replace(key)
    fresh[0].replace(certificate)
    return context(certificate, key)
