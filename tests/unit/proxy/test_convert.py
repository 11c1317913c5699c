"""Messages on their way through the proxy."""

from __future__ import annotations

import zlib
from dataclasses import replace

from gantry.leaves import properties
from gantry.model.message import StoredMessage
from gantry.proxy import convert
from gantry.proxy import messaging_pb2 as pb
from testkit.grpcclient import message, resource

STORED = StoredMessage(
    topic="Tea",
    body=b"green",
    properties={"UNIQ_KEY": "01AB", "TAGS": "a", "KEYS": "k1 k2", "colour": "green", "POP_CK": "x", "TRACE_ON": "true"},
    queue_id=3,
    queue_offset=7,
    log_offset=100,
    size=120,
    flag=0,
    sys_flag=0,
    born_ms=1_700_000_000_001,
    born_host="1.2.3.4:5",
    store_ms=1_700_000_000_002,
    store_host="5.6.7.8:9",
    reconsume_times=2,
    prepared_offset=0,
    offset_message_id="05060708",
)


def test_a_sent_message_has_the_properties_that_brokers_know() -> None:
    sent = message(
        "Tea",
        tag="a",
        keys=["k1", "k2"],
        message_group="pot",
        born_timestamp={"seconds": 1_700_000_000},
        born_host="host",
        trace_context="t",
        body_encoding=pb.GZIP,
        delivery_timestamp={"seconds": 1_700_000_100},
    )
    sent.user_properties["colour"] = "green"
    ready = convert.outgoing(sent, pb.DELAY, "9.9.9.9:1", 5)
    assert properties.parse(ready.properties) == {
        "colour": "green",
        "UNIQ_KEY": sent.system_properties.message_id,
        "TAGS": "a",
        "KEYS": "k1 k2",
        "TIMER_DELIVER_MS": "1700000100000",
        "__SHARDINGKEY": "pot",
        "TRACE_CONTEXT": "t",
        "__BORNHOST": "host",
        "BORN_TIMESTAMP": "1700000000000",
    }
    assert (ready.born_ms, ready.sys_flag) == (1_700_000_000_000, 1)


def test_a_half_names_its_topic_as_the_producer_group() -> None:
    sent = message("Tea", orphaned_transaction_recovery_duration={"seconds": 30})
    ready = convert.outgoing(sent, pb.TRANSACTION, "9.9.9.9:1", 5)
    pairs = properties.parse(ready.properties)
    assert (pairs["TRAN_MSG"], pairs["PGROUP"], pairs["CHECK_IMMUNITY_TIME_IN_SECONDS"]) == ("true", "Tea", "30")
    assert pairs["__BORNHOST"] == "9.9.9.9:1", "the address that the call came from, when the client names none"
    assert ready.sys_flag == 4


def test_a_delivered_message_has_an_upper_case_md5_and_no_reserved_property() -> None:
    found = convert.delivered(STORED, resource("Tea"), "handle")
    system = found.system_properties
    assert dict(found.user_properties) == {"colour": "green"}
    assert (system.body_digest.type, system.body_digest.checksum) == (pb.MD5, "9F27410725AB8CC8854A2769C7A516B8")
    assert (system.message_id, system.tag, list(system.keys)) == ("01AB", "a", ["k1", "k2"])
    assert (system.receipt_handle, system.delivery_attempt, system.queue_offset) == ("handle", 3, 7)
    assert system.message_type == pb.NORMAL
    assert system.born_timestamp.ToMilliseconds() == 1_700_000_000_001
    assert not system.HasField("message_group")


def test_a_body_that_cannot_be_decompressed_here_is_left_to_the_client() -> None:
    packed = zlib.compress(b"green")
    stored = replace(STORED, body=packed, sys_flag=1, decode_error="no zlib")
    found = convert.delivered(stored, resource("Tea"))
    assert (found.body, found.system_properties.body_encoding) == (packed, pb.GZIP)
    assert convert.delivered(STORED, resource("Tea")).system_properties.body_encoding == pb.IDENTITY


def test_a_delivered_message_names_type_and_origin() -> None:
    dead = {"DLQ_ORIGIN_TOPIC": "Tea", "DLQ_ORIGIN_MESSAGE_ID": "01AB", "__SHARDINGKEY": "pot"}
    system = convert.delivered(replace(STORED, properties=dead), resource("%DLQ%g")).system_properties
    assert (system.dead_letter_queue.topic, system.dead_letter_queue.message_id) == ("Tea", "01AB")
    assert (system.message_type, system.message_group) == (pb.FIFO, "pot")
    late = replace(STORED, properties={"TIMER_DELIVER_MS": "1700000100000"})
    assert convert.delivered(late, resource("Tea")).system_properties.message_type == pb.DELAY
    half = replace(STORED, properties={"TRAN_MSG": "true", "__SHARDINGKEY": "pot"})
    assert convert.type_of(half) == pb.TRANSACTION


def test_a_message_with_times_that_no_calendar_has_is_delivered() -> None:
    for born_ms in (-(1 << 63), (1 << 63) - 1):
        found = convert.delivered(replace(STORED, born_ms=born_ms, reconsume_times=(1 << 31) - 1), resource("Tea"))
        assert (found.body, found.system_properties.delivery_attempt) == (b"green", (1 << 31) - 1)
