"""The body of REGISTER_BROKER (103) in its forms: bytes in, topics and version out.

    plain        JSON RegisterBrokerBody; what every broker sends unless told otherwise
    compressed   zlib of length-prefixed parts (RegisterBrokerBody.encode); only when the header says so.
                 RocketMQ: its broker never sets that header, so a Java name server cannot read what its
                 own broker compresses; this name server relies on the header as well
    old          brokers before 3.0.11 send the topic table alone

    compressed: i32 n, DataVersion JSON | i32 topics, each i32 n, "name readQ writeQ perm filter {attributes}"
                | i32 n, filter servers JSON | from 5.0 on: i32 mappings, each i32 n, TopicQueueMappingInfo JSON

All input comes from the network: invalid input raises ValueError, and memory is bounded by a limit.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator
from dataclasses import dataclass, field

from gantry.model import documents
from gantry.model.topic import DataVersion, TopicConfig
from gantry.nameserver.sliced import SlicedWork
from gantry.wire import bodies, slicedbodies

_WHOLE_BODY_VERSION = 37  # V3_0_11: from here on the body is more than the topic table
_MAPPINGS_VERSION = 413  # V5_0_0
_TOPICS_MAX = 500_000  # what a name server keeps of all brokers
_TOPICS_AT_ONCE = 200  # some 5 us each
_ATTRIBUTES_DIALECT_MAX = 256  # characters: what RocketMQ writes is JSON, and there may be half a million topics
_PART_BYTES_MAX = 1 << 20
_INFLATED_AT_ONCE = 1 << 20
_INFLATED_BYTES_MAX = 64 << 20  # half a million topics; a frame of 16 MiB could inflate to 16 GiB


@dataclass(frozen=True, slots=True)
class RegistrationBody:
    """The contents of a registration, equal for all three forms."""

    topics: dict[str, TopicConfig]
    version: DataVersion
    filter_servers: tuple[str, ...] = ()
    mappings: dict[str, bytes] = field(default_factory=dict)  # by topic, as JSON


Steps = Generator[None, None, RegistrationBody]


def decode_registration(body: bytes, compressed: bool, broker_version: int) -> RegistrationBody:
    """Return the contents of a body; no topics for an empty body. ValueError when it is invalid."""
    return SlicedWork(decoding(body, compressed, broker_version)).at_once()


def decoding(body: bytes, compressed: bool, broker_version: int) -> Steps:
    """Return the same, in slices."""
    if not body:
        return RegistrationBody({}, DataVersion())
    if compressed:
        inflated = yield from _inflate(body)
        return (yield from _decode_compressed(inflated, broker_version))
    if broker_version < _WHOLE_BODY_VERSION:
        source = yield from slicedbodies.load_in_slices(body, ("topicConfigTable",))
        return (yield from _topics_and_version(documents.document(source, "a registration"), ()))
    source = yield from slicedbodies.load_in_slices(body, ("topicConfigSerializeWrapper", "topicConfigTable"))
    table = documents.mapping(source, "topicConfigSerializeWrapper")
    return (yield from _topics_and_version(table, _texts(documents.array(source, "filterServerList"))))


def _topics_and_version(table: documents.Document, filter_servers: tuple[str, ...]) -> Steps:
    topics: dict[str, TopicConfig] = {}
    for number, (name, value) in enumerate(documents.mapping(table, "topicConfigTable").items(), 1):
        config = TopicConfig.from_json(value)
        topics[config.name or name] = config
        if number % _TOPICS_AT_ONCE == 0:
            yield
    mappings: dict[str, bytes] = {}
    for topic, mapping in documents.mapping(table, "topicQueueMappingInfoMap").items():
        mappings[topic] = bodies.dumps(mapping)
        yield
    return RegistrationBody(topics, DataVersion.from_json(table.get("dataVersion")), filter_servers, mappings)


def _inflate(body: bytes) -> Generator[None, None, bytes]:
    inflater = zlib.decompressobj()
    inflated = bytearray()
    rest = body
    try:
        while rest and len(inflated) < _INFLATED_BYTES_MAX:
            inflated += inflater.decompress(rest, _INFLATED_AT_ONCE)
            rest = inflater.unconsumed_tail
            yield
    except zlib.error as error:
        raise ValueError(f"the compressed registration is damaged: {error}") from error
    if not inflater.eof:
        raise ValueError(f"the compressed registration is cut off or has more than {_INFLATED_BYTES_MAX} bytes")
    return bytes(inflated)


def _decode_compressed(data: bytes, broker_version: int) -> Steps:
    parts = _Parts(data)
    version = DataVersion.from_json(_part(parts))
    topics: dict[str, TopicConfig] = {}
    count = parts.count()
    if count > _TOPICS_MAX:
        raise ValueError(f"the registration has {count} topics, {_TOPICS_MAX} are allowed")
    for number in range(count):
        topic = _topic_of(parts.part().decode())
        topics[topic.name] = topic
        if number % _TOPICS_AT_ONCE == 0:
            yield
    filter_servers = _part(parts) or []
    if not isinstance(filter_servers, list):
        raise ValueError("the filter servers are no JSON array")
    mappings: dict[str, bytes] = {}
    if broker_version >= _MAPPINGS_VERSION and not parts.is_done:
        for _ in range(parts.count()):
            mapping = documents.document(_part(parts), "a static mapping")
            mappings[documents.text(mapping, "topic")] = bodies.dumps(mapping)
            yield
    return RegistrationBody(topics, version, _texts(filter_servers), mappings)


def _part(parts: _Parts) -> object:
    """Return the value of the next part; None when it is empty. ValueError for more than `_PART_BYTES_MAX`."""
    text = parts.part()
    if len(text) > _PART_BYTES_MAX:
        raise ValueError(f"a part of the registration has {len(text)} bytes, {_PART_BYTES_MAX} are allowed")
    return bodies.loads(text, bodies.ASKED_CHARACTERS_MAX) if text else None


def _topic_of(text: str) -> TopicConfig:
    """Return the topic of a text in the form of TopicConfig.encode: five words, then attributes as JSON since 5.0."""
    words = text.split(" ", 5)
    if len(words) < 5:
        raise ValueError(f"a topic of the registration has {len(words)} words, expected 5 or 6")
    written = words[5].encode() if len(words) > 5 and words[5] else b"{}"
    attributes = documents.document(bodies.loads(written, _ATTRIBUTES_DIALECT_MAX), "attributes")
    return TopicConfig(
        words[0],
        int(words[1]),
        int(words[2]),
        int(words[3]),
        words[4],
        attributes={key: str(value) for key, value in attributes.items()},
    )


def _texts(values: list[object]) -> tuple[str, ...]:
    return tuple(value for value in values if isinstance(value, str))


class _Parts:
    """A cursor over the length-prefixed parts of a body."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_done(self) -> bool:
        return self._at >= len(self._data)

    def count(self) -> int:
        """Read an i32 count; ValueError when it exceeds the bytes left, because each item has four bytes at least."""
        end = self._at + 4
        if end > len(self._data):
            raise ValueError(f"the registration ends at {len(self._data)}, expected a number at {self._at}")
        number = int.from_bytes(self._data[self._at : end], "big", signed=True)
        if not 0 <= number <= len(self._data) - end:
            raise ValueError(f"the registration claims {number} at {self._at}, {len(self._data) - end} bytes are left")
        self._at = end
        return number

    def part(self) -> bytes:
        """Read a length and return so many bytes."""
        length = self.count()
        start, self._at = self._at, self._at + length
        return self._data[start : self._at]
