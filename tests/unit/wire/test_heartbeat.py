"""Heartbeats in every client's spelling."""

from __future__ import annotations

import json

import pytest

from gantry.model.subscription import Subscription
from gantry.wire import heartbeat
from gantry.wire.bodies import MalformedBodyError
from gantry.wire.heartbeat import ConsumerData, Heartbeat


def test_what_is_written_reads_back() -> None:
    said = Heartbeat("10.0.0.5@1", ("P",), (ConsumerData("C", (Subscription("T", "A || B", 5),)),))
    assert heartbeat.read(heartbeat.write(said)) == said
    document = json.loads(heartbeat.write(said))
    assert document["clientID"] == "10.0.0.5@1"
    assert document["producerDataSet"] == [{"groupName": "P"}]
    assert document["consumerDataSet"][0]["consumeType"] == "CONSUME_PASSIVELY"


def test_cpp_sends_enums_as_numbers() -> None:
    consumer = {"groupName": "C", "consumeType": 1, "messageModel": 0, "consumeFromWhere": 4, "subscriptionDataSet": []}
    (read,) = heartbeat.read(json.dumps({"clientID": "c", "consumerDataSet": [consumer]}).encode()).consumers
    assert (read.consume_type, read.message_model) == ("CONSUME_PASSIVELY", "BROADCASTING")
    assert read.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"


def test_go_sends_null_sets_and_codes_as_text() -> None:
    subscription = {"topic": "T", "subString": "A", "tagsSet": ["A"], "codeSet": ["65"], "subVersion": 17 * 10**17}
    body = {
        "clientID": "c",
        "producerDataSet": None,
        "consumerDataSet": [{"groupName": "C", "subscriptionDataSet": [subscription]}],
    }
    read = heartbeat.read(json.dumps(body).encode())
    assert read.producer_groups == ()
    assert read.consumers[0].subscriptions == (Subscription("T", "A", 17 * 10**17),)


@pytest.mark.parametrize("value", ["CONSUME_SIDEWAYS", 99, -1, None, True, {}])
def test_an_unknown_enum_is_the_default(value: object) -> None:
    consumer = {"groupName": "C", "consumeType": value, "messageModel": value, "consumeFromWhere": value}
    (read,) = heartbeat.read(json.dumps({"clientID": "c", "consumerDataSet": [consumer]}).encode()).consumers
    assert read == ConsumerData("C")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{}", "clientID is missing"),
        (b"[]", "expected an object"),
        (b"", "not JSON"),
        (b'{"clientID":"c","consumerDataSet":{}}', "consumerDataSet"),
        (b'{"clientID":"c","consumerDataSet":[5]}', "a consumer"),
        (b'{"clientID":"c","producerDataSet":["x"]}', "a producer"),
        (b'{"clientID":"c","consumerDataSet":[{"subscriptionDataSet":[{"subVersion":"x"}]}]}', "subVersion"),
    ],
)
def test_what_is_no_heartbeat_is_malformed(body: bytes, words: str) -> None:
    with pytest.raises(MalformedBodyError, match=words):
        heartbeat.read(body)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"clientID": "x" * 513}, "the client id .* has more than 512 bytes"),
        ({"clientID": "\u6d88" * 171}, "the client id .* has more than 512 bytes"),
        (
            {"consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"subString": "x" * 16_385}]}]},
            "subString: the expression has 16385 characters, 16384 are allowed",
        ),
        (
            {"consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"expressionType": "x" * 41}]}]},
            "the type of the expression has 41 characters, 40 are allowed",
        ),
        (
            {"producerDataSet": [{"groupName": "p"}] * heartbeat.ENTRIES_MAX},
            f"{heartbeat.ENTRIES_MAX + 1} groups and subscriptions, {heartbeat.ENTRIES_MAX} are allowed",
        ),
    ],
)
def test_what_is_too_long_is_refused_by_name(said: dict[str, object], words: str) -> None:
    with pytest.raises(MalformedBodyError, match=words):
        heartbeat.read(json.dumps({"clientID": "c", **said}).encode())


def test_a_client_id_may_have_512_bytes() -> None:
    assert heartbeat.read(json.dumps({"clientID": "\u6d88" * 170}).encode()).client_id == "\u6d88" * 170
