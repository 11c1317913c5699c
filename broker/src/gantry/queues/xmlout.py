"""Documents that clients get, written by hand: the hot ones are a handful of elements.  Pure.

Text is what XML 1.0 can hold.  A carriage return travels as a reference, because readers turn it into a line feed
otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

NAMESPACE = "http://mns.aliyuncs.com/doc/v1"
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"})
_SPECIAL = re.compile("[&<>\r]")
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escaped(text: str) -> str:
    """Return a text as the content of an element."""
    return text.translate(_ESCAPES) if _SPECIAL.search(text) else text


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
    clean = _NO_XML.sub("?", message)
    texts = {"Code": code, "Message": clean, "RequestId": request_id, "HostId": host_id}
    return document("Error", "".join(element(name, text) for name, text in texts.items()))
