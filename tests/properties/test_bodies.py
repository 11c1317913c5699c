"""Bodies and headers from anybody: a value comes out or a documented error, and nothing else."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from gantry.errors import RemoteProtocolError
from gantry.leaves.frames import Command
from gantry.model.route import BrokerData, MessageQueue, QueueData, TopicRoute
from gantry.model.subscription import GroupConfig, Subscription
from gantry.model.topic import DataVersion, TopicConfig
from gantry.wire import bodies, headers, heartbeat, record
from gantry.wire.frame import FrameReader

TEXTS = st.text(st.characters(codec="utf-8"), max_size=10)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=10
)
DIALECT = st.lists(
    st.sampled_from(
        ["{", "}", "[", "]", ":", ",", '"a"', "'b'", "0", "-1.5", "true", "null", "x", " ", "\\", '"', "'", "\\u12"]
    ),
    max_size=12,
).map("".join)
KNOWN = ["topicName", "perm", "groupName", "counter", "brokerAddrs", "queueDatas", "brokerDatas", "attributes", "0"]
DOCUMENTS = st.dictionaries(st.sampled_from(KNOWN) | TEXTS, VALUES, max_size=4)
SHAPES = (BrokerData, DataVersion, GroupConfig, MessageQueue, QueueData, Subscription, TopicConfig, TopicRoute)


@given(VALUES)
def test_what_is_dumped_loads_back(value: object) -> None:
    assert bodies.loads(bodies.dumps(value)) == value


@given(VALUES)
def test_a_loaded_body_is_what_the_standard_reader_says(value: object) -> None:
    text = json.dumps(value, indent=1, ensure_ascii=False)
    if not any(0xD800 <= ord(character) <= 0xDFFF for character in text):
        assert bodies.loads(text.encode()) == json.loads(text)


@given(st.binary(max_size=60) | DIALECT.map(str.encode))
@example(b"[" * 100_000)
@example(b'{"a":' * 100_000)
@example(b"1" * 100_000)
@example(b"'" + b"\\" * 100_000)
@example(b"{" + b"{}:{}," * 10_000)
def test_any_body_is_a_value_or_malformed(body: bytes) -> None:
    try:
        value = bodies.loads(body)
    except bodies.MalformedBodyError:
        return
    assert bodies.loads(bodies.dumps(value)) == value


@given(st.dictionaries(st.text("abc0", min_size=1), st.integers(0, 9), max_size=4))
def test_unquoted_keys_and_single_quotes_read_as_their_standard_form(table: dict[str, int]) -> None:
    dialect = "{" + ",".join(f"{key}:'{value}'" for key, value in table.items()) + ",}" if table else "{}"
    assert bodies.loads(dialect.encode()) == {key: str(value) for key, value in table.items()}


@given(DOCUMENTS | VALUES)
def test_any_document_is_a_value_or_names_what_is_wrong(document: object) -> None:
    for shape in SHAPES:
        try:
            value = shape.from_json(document)
        except ValueError:
            continue
        assert shape.from_json(json.loads(bodies.dumps(value.to_json()))) == value


@given(DOCUMENTS | VALUES)
def test_any_heartbeat_is_one_or_is_malformed(document: object) -> None:
    try:
        heartbeat.read(bodies.dumps(document))
    except bodies.MalformedBodyError:
        pass


@given(st.sampled_from(sorted(headers.REQUESTS)), st.data())
def test_any_fields_are_a_header_or_name_what_is_wrong(code: int, data: st.DataObject) -> None:
    names = [field.name for field in headers.REQUESTS[code]] or ["x"]
    ext = data.draw(st.dictionaries(st.sampled_from(names), TEXTS | st.integers().map(str)))
    try:
        header = headers.parse(code, ext)
    except headers.HeaderError as error:
        assert any(field.name in str(error) for field in headers.REQUESTS[code])
        return
    for field in headers.REQUESTS[code]:
        if field.kind is headers.FieldType.TEXT:
            header.text(field.name)
        elif field.kind is headers.FieldType.BOOL:
            header.boolean(field.name)
        else:
            header.integer(field.name)


@given(st.lists(st.binary(max_size=30)))
def test_a_reader_takes_any_pieces_or_gives_up(pieces: list[bytes]) -> None:
    reader = FrameReader()
    for piece in pieces:
        try:
            commands = reader.feed(piece)
        except RemoteProtocolError:
            return
        assert all(isinstance(command, Command) for command in commands)
    assert reader.pending_bytes <= sum(map(len, pieces))


@given(st.binary(max_size=200))
def test_any_answer_is_messages_or_breaks_the_protocol(data: bytes) -> None:
    try:
        messages = record.messages(data)
    except RemoteProtocolError:
        return
    assert sum(message.size for message in messages) == len(data)
