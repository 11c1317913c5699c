"""Documents that clients get, written by hand: the hot ones are a handful of elements.  Pure.

A carriage return travels as a reference, because readers turn it into a line feed otherwise.  What XML 1.0 cannot hold
at all becomes a question mark: one such id or property of a remoting producer would make a whole answer unreadable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

NAMESPACE = "http://mns.aliyuncs.com/doc/v1"
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"})
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# The characters that are neither markup nor a carriage return, and that XML can hold.
_SPECIAL = re.compile("[^\t\n\x20-%'-;=?-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escaped(text: str) -> str:
    """Return a text as the content of an element."""
    return _NO_XML.sub("?", text).translate(_ESCAPES) if _SPECIAL.search(text) else text


def is_text(text: str) -> bool:
    """Return whether XML can hold a text."""
    return _NO_XML.search(text) is None


def element(name: str, content: object) -> str:
    """Return one element with text in it."""
    return f"<{name}>{escaped(str(content))}</{name}>"


def document(root: str, content: str) -> bytes:
    """Return a whole document; `content` is XML."""
    return f'{_HEAD}<{root} xmlns="{NAMESPACE}">{content}</{root}>'.encode()


def listing(root: str, item: str, contents: Iterable[str]) -> bytes:
    """Return a document of equal elements; each content is XML."""
    return document(root, "".join(f"<{item}>{content}</{item}>" for content in contents))


def error(code: str, message: str, request_id: str, host_id: str) -> bytes:
    """Return the document of an error."""
    texts = {"Code": code, "Message": message, "RequestId": request_id, "HostId": host_id}
    return document("Error", "".join(element(name, text) for name, text in texts.items()))
