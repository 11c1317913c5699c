"""The signature of a request: HMAC-SHA1 over its method, three headers, the x-mns-* headers and the raw target.

    text = METHOD \n Content-MD5 or nothing \n Content-Type or nothing \n Date \n name:value\n ... target

The x-mns-* headers stand with their names in lower case and sorted.  The target is the path with its query, exactly as
it stands in the request line: a target that is escaped once more has another signature.  Source: what aliyun-sdk-mns
1.1.9.1 sends.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping

PREFIX = "x-mns-"


def text_to_sign(method: str, target: str, headers: Mapping[str, str]) -> str:
    """Return the text that is signed; names of headers may have any case."""
    lower = {name.lower(): value.strip() for name, value in headers.items()}
    own = "".join(f"{name}:{lower[name]}\n" for name in sorted(lower) if name.startswith(PREFIX))
    fixed = (lower.get(name, "") for name in ("content-md5", "content-type", "date"))
    return "\n".join((method, *fixed)) + "\n" + own + target


def authorization(access_id: str, secret: str, text: str) -> str:
    """Return the value of the header `Authorization` for a text of `text_to_sign`."""
    digest = hmac.new(secret.encode(), text.encode(), hashlib.sha1).digest()
    return f"MNS {access_id}:{base64.b64encode(digest).decode()}"
