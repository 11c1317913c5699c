"""A channel to people, or to their programs, by an HTTP POST that is signed.

The body is `Digest.document()`.  The headers

    X-Gantry-Timestamp    seconds since the epoch
    X-Gantry-Signature    sha256=<hex of HMAC-SHA256(secret, timestamp + "." + body)>
    Idempotency-Key       the digest's key: the same for the same cases

let a receiver know who sent it, that it is new, and that it has it already.  2xx means taken; anything else, also a
redirect, means not.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import socket
import ssl
from urllib.parse import urlsplit

from gantry.clock import Clock, SystemClock
from gantry.errors import ConfigError, GantryError
from gantry.guarantee.people import Digest
from gantry.guarantee.threads import OneThread

_TIMEOUT_S = 20.0
_SECRET_CHARACTERS_MIN = 16


class NotTakenError(GantryError):
    """The receiver did not answer 2xx."""


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """Return the value of X-Gantry-Signature."""
    return "sha256=" + hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


class Webhook:
    """Posts each digest; ConfigError for an address or a secret that will not do."""

    name = "webhook"

    def __init__(self, url: str, secret: str, clock: Clock | None = None) -> None:
        # No part of the address stands in an error: with many receivers it is the secret.
        try:
            parts = urlsplit(url)
            self._port = parts.port
        except ValueError:
            raise ConfigError("the address of the webhook has a wrong port or host") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("the address of the webhook has to be http://HOST/... or https://HOST/...")
        if parts.username is not None:
            raise ConfigError("the address of the webhook has a user; its receiver checks the signature instead")
        if not url.isascii() or not url.isprintable() or " " in url:
            raise ConfigError("the address of the webhook has characters that have to be written as %XX")
        if len(secret) < _SECRET_CHARACTERS_MIN:
            remark = f"a webhook's secret has at least {_SECRET_CHARACTERS_MIN} characters"
            raise ConfigError(f"{remark}; make one with: openssl rand -hex 32")
        self._is_tls, self._host = parts.scheme == "https", parts.hostname
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._secret = secret.encode()
        self._clock = clock or SystemClock()
        self._thread = OneThread("gantry-guarantee-webhook")

    async def tell(self, digest: Digest) -> None:
        """Post it; NotTakenError, OSError and http.client's errors."""
        connection: http.client.HTTPConnection
        if self._is_tls:
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=_TIMEOUT_S, context=context)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
        await self._thread.run(lambda: self._post(digest, connection), lambda: _hang_up(connection))

    def _post(self, digest: Digest, connection: http.client.HTTPConnection) -> None:
        body, timestamp = digest.document(), str(self._clock.now_ms() // 1000)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "gantrymq-guarantee",
            "X-Gantry-Timestamp": timestamp,
            "X-Gantry-Signature": signature(self._secret, timestamp, body),
            "Idempotency-Key": digest.key,
        }
        try:
            connection.request("POST", self._target, body, headers)
            status = connection.getresponse().status
        finally:
            connection.close()
        if not 200 <= status < 300:
            raise NotTakenError(f"the webhook answered {status}, expected 2xx")


def _hang_up(connection: http.client.HTTPConnection) -> None:
    if connection.sock is not None:
        with contextlib.suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)
