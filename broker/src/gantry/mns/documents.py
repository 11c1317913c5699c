"""The XML of requests and answers, written and read without entities.

Reading is bounded, because an answer comes from outside: a document type (and with it every entity of its own) is
refused, and so are more than DEPTH_MAX levels or ELEMENTS_MAX elements.  Namespaces are dropped; an answer without one
is read as well.  Writing escapes the carriage return, which a parser would turn into a line feed, and refuses the
characters that XML 1.0 cannot carry at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from xml.parsers import expat

from gantry.errors import RemoteProtocolError

NAMESPACE = "http://mns.aliyuncs.com/doc/v1"
DEPTH_MAX = 8
ELEMENTS_MAX = 20_000
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"})


@dataclass(slots=True)
class XmlNode:
    """An element: its name without namespace, its text, and the elements in it."""

    name: str
    text: str = ""
    children: list[XmlNode] = field(default_factory=list)

    def get(self, name: str) -> str | None:
        """Return the text of the first child of this name, or None when there is none."""
        return next((child.text for child in self.children if child.name == name), None)

    def all(self, name: str) -> list[XmlNode]:
        """Return the children of this name, in order."""
        return [child for child in self.children if child.name == name]


def element(name: str, content: str | Iterable[str]) -> str:
    """Return an element around a text, which is escaped, or around elements; ValueError for what XML cannot carry."""
    if isinstance(content, str):
        found = _FORBIDDEN.search(content)
        if found:
            raise ValueError(
                f"{name} has the character U+{ord(found[0]):04X} at {found.start()}, which XML cannot carry; send bytes"
            )
        return f"<{name}>{content.translate(_ESCAPES)}</{name}>"
    return f"<{name}>{''.join(content)}</{name}>"


def document(name: str, elements: Iterable[str]) -> bytes:
    """Return the document of a request, with its namespace, as UTF-8."""
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<{name} xmlns="{NAMESPACE}">'
    return f"{head}{''.join(elements)}</{name}>".encode()


def parse(data: bytes) -> XmlNode:
    """Return the root of a document; RemoteProtocolError when it is none, or beyond the bounds of this module."""
    reader = _Reader()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = reader.doctype
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.characters
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise RemoteProtocolError(f"the answer of {len(data)} bytes is no XML document: {error}") from error
    return reader.root.children[0]


class _Reader:
    def __init__(self) -> None:
        self.root = XmlNode("")
        self._open = [self.root]
        self._elements = 0

    def doctype(self, *_declared: object) -> None:
        raise RemoteProtocolError("the answer declares a document type; entities are not read")

    def start(self, name: str, _attributes: object) -> None:
        self._elements += 1
        if len(self._open) > DEPTH_MAX or self._elements > ELEMENTS_MAX:
            raise RemoteProtocolError(f"the answer has more than {DEPTH_MAX} levels or {ELEMENTS_MAX} elements")
        node = XmlNode(name.rpartition(" ")[2])
        self._open[-1].children.append(node)
        self._open.append(node)

    def end(self, _name: str) -> None:
        self._open.pop()

    def characters(self, text: str) -> None:
        self._open[-1].text += text
