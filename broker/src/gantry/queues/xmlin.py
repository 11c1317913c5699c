"""Documents that clients send, read into small trees.  Pure.

expat reads them with handlers that refuse what a document of this protocol never has: a document type, and with it
every entity of its own.  So nothing can grow beyond the body, and nothing is fetched.  Depth and number of elements
are bounded too.  Namespaces and attributes are ignored: SDKs differ in them.
"""

from __future__ import annotations

from xml.parsers import expat

from gantry.queues.faults import malformed

DEPTH_MAX = 8
ELEMENTS_MAX = 2_000
_BUFFER_BYTES = 64 << 10


class XmlElement:
    """One element: its name without prefix, its own text, and the elements in it."""

    __slots__ = ("children", "name", "text")

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = ""
        self.children: list[XmlElement] = []

    def child_texts(self) -> dict[str, str]:
        """Return the text of each child by name; the last one of a name counts."""
        return {child.name: child.text for child in self.children}


def read(body: bytes) -> XmlElement:
    """Return the root of a document in UTF-8; QueueFaultError 400 MalformedXML for anything else."""
    reader = _Reader()
    try:
        reader.parser.Parse(body, True)
    except expat.ExpatError as error:
        raise malformed(f"the body is no XML document: {error}") from error
    except (ValueError, LookupError, UnicodeError) as error:  # an encoding that Python does not have, or is no text
        raise malformed(f"the encoding of the document cannot be read: {error}") from error
    assert reader.root is not None, "expat refuses a document without a root"
    return reader.root


class _Reader:
    __slots__ = ("count", "open", "parser", "root")

    def __init__(self) -> None:
        self.root: XmlElement | None = None
        self.open: list[XmlElement] = []
        self.count = 0
        parser = self.parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.buffer_size = _BUFFER_BYTES
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.StartDoctypeDeclHandler = _refused
        parser.EntityDeclHandler = _refused

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.count += 1
        if len(self.open) >= DEPTH_MAX or self.count > ELEMENTS_MAX:
            raise malformed(f"the document has more than {DEPTH_MAX} levels or {ELEMENTS_MAX} elements")
        element = XmlElement(name.rpartition(":")[2])
        if self.open:
            self.open[-1].children.append(element)
        else:
            self.root = element
        self.open.append(element)

    def _end(self, name: str) -> None:
        self.open.pop()

    def _text(self, text: str) -> None:
        # A list would be needed for many parts; buffer_text makes them few, and the body is bounded.
        self.open[-1].text += text


def _refused(*declared: object) -> None:
    raise malformed("the document has a document type; leave it out")

