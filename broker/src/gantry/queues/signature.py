"""Whether a request was signed by who it says.  Pure.

    Authorization: MNS <access id>:<base64(HMAC-SHA1(secret, text))>
    text = VERB \\n Content-MD5 \\n Content-Type \\n Date \\n x-mns-headers resource

Absent headers are empty; the `x-mns-` headers are `name:value\\n` each, in lower case and sorted; the resource is the
request target exactly as it was sent.  `Date` may be 15 minutes away from our clock, so an intercepted request is worth
nothing later.  `Content-MD5` is base64 of the digest, or of its hex digits, as the SDKs for Python write it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from functools import lru_cache

from gantry.queues.faults import QueueFaultError

SKEW_S_MAX = 15 * 60
_SCHEME = "MNS "


def check(
    method: str, target: str, headers: Mapping[str, str], users: Mapping[str, str], now_s: float
) -> str:
    """Return the access id of a request; QueueFaultError 400, 403 or 408 when it is not signed as it has to be."""
    given = headers.get("authorization", "")
    if not given.startswith(_SCHEME):
        raise QueueFaultError(403, "AccessDenied", "the request has no header Authorization: MNS ID:SIGNATURE")
    user, _, signature = given[len(_SCHEME) :].strip().partition(":")
    secret = users.get(user)
    if secret is None:
        raise QueueFaultError(403, "AccessIDAuthError", "the access id is not known here")
    date = headers.get("date", "")
    made_s = _instant(date)
    if made_s is None:
        text = "the header Date is missing or no date; expected one such as: Fri, 27 Nov 2026 12:00:00 GMT"
        raise QueueFaultError(400, "InvalidDateHeader", text)
    wanted = sign(secret, method, target, headers)
    if not hmac.compare_digest(wanted, signature.strip().encode("latin-1", "replace")):
        text = "the signature is another one than the request and the secret give; check secret, path and headers"
        raise QueueFaultError(403, "SignatureDoesNotMatch", text)
    if abs(now_s - made_s) > SKEW_S_MAX:
        text = f"the header Date is {abs(now_s - made_s):.0f} s away from the server's clock, {SKEW_S_MAX} are allowed"
        raise QueueFaultError(408, "TimeExpired", text)
    return user


def sign(secret: str, method: str, target: str, headers: Mapping[str, str]) -> bytes:
    """Return the signature of a request in base64; header names are in lower case."""
    own = "".join([f"{name}:{headers[name]}\n" for name in sorted(headers) if name.startswith("x-mns-")])
    get = headers.get
    text = f"{method}\n{get('content-md5', '')}\n{get('content-type', '')}\n{get('date', '')}\n{own}{target}"
    whole = _begun(secret).copy()
    whole.update(text.encode("utf-8", "surrogateescape"))
    return base64.b64encode(whole.digest())


def check_digest(given: str, body: bytes) -> None:
    """Hold a body against its Content-MD5; QueueFaultError 400 when it is another one."""
    digest = hashlib.md5(body, usedforsecurity=False).digest()
    try:
        told = base64.b64decode(given.strip(), validate=True)
    except ValueError:  # no base64, or no ASCII
        told = b""
    if told != digest and told.lower() != digest.hex().encode():
        text = "Content-MD5 is neither the digest of the body in base64 nor its hex digits in base64"
        raise QueueFaultError(400, "InvalidDigest", text)


@lru_cache(1024)
def _begun(secret: str) -> hmac.HMAC:
    """Return the beginning of every signature of a secret, to be copied: a third of the cost."""
    return hmac.new(secret.encode(), digestmod="sha1")


@lru_cache(256)
def _instant(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
