"""Registrations in the forms that brokers of different ages send."""

from __future__ import annotations

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantry.model.topic import DataVersion, TopicConfig
from gantry.nameserver.registration import decode_registration
from testkit.counting import instructions

VERSION = {"counter": 7, "stateVersion": 2, "timestamp": 1_700_000_000_000}
TOPIC = {
    "attributes": {"message.type": "FIFO"},
    "order": False,
    "perm": 6,
    "readQueueNums": 4,
    "topicFilterType": "SINGLE_TAG",
    "topicName": "T",
    "topicSysFlag": 0,
    "writeQueueNums": 8,
}
EXPECTED = TopicConfig("T", 4, 8, 6, attributes={"message.type": "FIFO"})


def part(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def compressed(topics: list[bytes], mappings: list[bytes] | None) -> bytes:
    body = part(json.dumps(VERSION).encode())
    body += len(topics).to_bytes(4, "big") + b"".join(map(part, topics)) + part(b'["10.0.0.1:5555"]')
    if mappings is not None:
        body += len(mappings).to_bytes(4, "big") + b"".join(map(part, mappings))
    return zlib.compress(body)


def test_the_plain_form_carries_topics_version_and_filter_servers() -> None:
    body = {
        "filterServerList": ["10.0.0.1:5555"],
        "topicConfigSerializeWrapper": {
            "dataVersion": VERSION,
            "mappingDataVersion": VERSION,
            "topicConfigTable": {"T": TOPIC},
            "topicQueueMappingDetailMap": {},
            "topicQueueMappingInfoMap": {"T": {"topic": "T"}},
        },
    }
    decoded = decode_registration(json.dumps(body).encode(), False, 479)
    assert decoded.topics == {"T": EXPECTED}
    assert decoded.version == DataVersion(7, 2, 1_700_000_000_000)
    assert decoded.filter_servers == ("10.0.0.1:5555",)
    assert decoded.mappings == {"T": b'{"topic":"T"}'}


def test_an_old_broker_sends_the_topic_table_alone() -> None:
    decoded = decode_registration(
        json.dumps({"dataVersion": VERSION, "topicConfigTable": {"T": TOPIC}}).encode(), False, 36
    )
    assert (decoded.topics, decoded.version.counter) == ({"T": EXPECTED}, 7)


@pytest.mark.parametrize("version", [401, 479])
def test_the_compressed_form_is_read_with_and_without_mappings(version: int) -> None:
    topics = [b'T 4 8 6 SINGLE_TAG {"message.type":"FIFO"}', b"U 1 1 2 MULTI_TAG"]
    mappings = [b'{"topic":"T","bname":"b-a"}'] if version >= 413 else None
    decoded = decode_registration(compressed(topics, mappings), True, version)
    assert decoded.topics == {"T": EXPECTED, "U": TopicConfig("U", 1, 1, 2, "MULTI_TAG")}
    assert decoded.filter_servers == ("10.0.0.1:5555",)
    assert decoded.mappings == ({"T": b'{"bname":"b-a","topic":"T"}'} if mappings else {})


def test_an_empty_body_stands_for_no_topics() -> None:
    assert decode_registration(b"", False, 479).topics == {}


@pytest.mark.parametrize(
    "inflated",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x09{}",
        part(b"{}") + b"\x7f\xff\xff\xff",
        part(b"{}") + (1).to_bytes(4, "big") + part(b"T 4 8"),
        part(b"{}") + (1).to_bytes(4, "big") + part(b"T four 8 6 SINGLE_TAG {}"),
        part(b"[" * 100_000),
    ],
)
def test_a_compressed_body_that_lies_about_its_parts_is_refused(inflated: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode_registration(zlib.compress(inflated), True, 479)


@pytest.mark.parametrize(
    "body",
    [
        compressed([b"T 4 8 6 SINGLE_TAG {" + b"a:1," * 200_000 + b"}"], None),
        compressed([], [b'{"topic":"T","x":[' + b"[]," * 400_000 + b"[]]}"]),
        compressed([], [b'{topic:"T",x:{' + b"0:1," * 100_000 + b"}}"]),
    ],
    ids=["attributes in the dialect", "a long mapping", "a mapping in the dialect"],
)
def test_few_bytes_that_cost_much_are_refused_at_little_cost(body: bytes) -> None:
    assert len(body) < 10_000
    with instructions() as ran, pytest.raises(ValueError):
        decode_registration(body, True, 479)
    assert ran.calls < 1000


def test_a_bomb_is_refused_before_it_fills_the_memory() -> None:
    with pytest.raises(ValueError, match="has more than"):
        decode_registration(zlib.compress(bytes(70 << 20)), True, 479)


@given(st.binary(max_size=200), st.booleans(), st.sampled_from([30, 401, 479]))
def test_random_bodies_raise_nothing_but_value_errors(body: bytes, is_compressed: bool, version: int) -> None:
    try:
        decode_registration(zlib.compress(body) if is_compressed else body, is_compressed, version)
    except ValueError:
        pass
