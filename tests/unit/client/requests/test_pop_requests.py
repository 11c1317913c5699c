"""How the answers of pops read: the receipts of messages, and what requests about them carry."""

from __future__ import annotations

import base64
import json

import pytest

from gantry.client.popped import Receipt
from gantry.client.requests import pop_requests
from gantry.client.requests.pop_requests import ANY_QUEUE, PopResult, PopSettings, PopStatus
from gantry.errors import RefusedError, RemoteProtocolError
from gantry.leaves.frames import Command
from gantry.model.route import MessageQueue
from gantry.model.subscription import Subscription
from gantry.pop.handle import NORMAL, RETRY_V1, RETRY_V2
from gantry.wire.codes import ResponseCode
from gantry.wire.command import reply
from testkit.leasing import stored

ANY = MessageQueue("T", "broker-a", ANY_QUEUE)
SETTINGS = PopSettings("g", Subscription("T"))
LEASE = {"popTime": "1700", "invisibleTime": "60000", "reviveQid": "3", "restNum": "5"}
FORWARDED = Receipt(40, 1700, 60000, 3, RETRY_V1, "broker-a", 2, 41)


def popped(body: bytes, settings: PopSettings = SETTINGS, code: int = 0, **ext: str) -> PopResult:
    return pop_requests.pop(ANY, settings).read(Command(code, ext={**LEASE, **ext}, body=body))


def test_receipts_are_made_of_the_texts_of_the_answer_by_flag_and_queue() -> None:
    own = "40 1700 60000 3 1 broker-a 0 41"
    body = stored(11, queue_id=1) + stored(13, queue_id=1) + stored(5, queue_id=0)
    body += stored(41, queue_id=0, properties=b"POP_CK\x01%b\x02" % own.encode())
    result = popped(body, startOffsetInfo="0 1 10;0 0 5;1 0 40", msgOffsetInfo="0 1 11,13;0 0 5;1 0 41")
    assert [one.handle for one in result.messages] == [
        "10 1700 60000 3 0 broker-a 1 11", "10 1700 60000 3 0 broker-a 1 13", "5 1700 60000 3 0 broker-a 0 5", own
    ]  # fmt: skip
    assert [one.properties["POP_CK"] for one in result.messages] == [one.handle for one in result.messages]
    assert (result.status, result.rest, result.unread) == (PopStatus.FOUND, 5, ())


@pytest.mark.parametrize("forged", ["x", "40 1700 60000 3 1 broker-b 0 41", "40 1600 60000 3 1 broker-a 0 41"])
def test_a_producer_cannot_choose_the_receipt_of_its_message(forged: str) -> None:
    body = stored(41, queue_id=0, properties=b"POP_CK\x01%b\x02" % forged.encode())
    result = popped(body, startOffsetInfo="0 0 41", msgOffsetInfo="0 0 41")
    assert result.messages[0].handle == "41 1700 60000 3 0 broker-a 0 41"


def test_messages_that_were_left_out_are_told_by_their_receipts() -> None:
    result = popped(stored(7), startOffsetInfo="0 0 7;1 0 2", msgOffsetInfo="0 0 7,8;1 0 2")
    assert [str(one) for one in result.unread] == ["7 1700 60000 3 0 broker-a 0 8", "2 1700 60000 3 1 broker-a 0 2"]


def test_a_damaged_record_has_no_receipt_and_nothing_is_said_of_the_offset_that_it_lost() -> None:
    damaged = bytearray(stored(9))
    damaged[20:28] = (1 << 40).to_bytes(8, "big")  # the queue offset
    damaged[-3] ^= 1  # a length in the record does not match any more
    damaged[84] ^= 0xFF  # and the length of its body
    result = popped(bytes(damaged), startOffsetInfo="0 0 9", msgOffsetInfo="0 0 9")
    assert result.messages[0].receipt is None and result.messages[0].decode_error
    assert result.unread == ()


def test_the_attempts_of_an_orderly_pop_are_in_the_answer_and_not_in_the_record() -> None:
    orderly = PopSettings("g", Subscription("T"), is_orderly=True)
    info = {"startOffsetInfo": "0 0 7", "msgOffsetInfo": "0 0 7,8", "orderCountInfo": "0 qo0%7 2;0 0 1"}
    body = stored(7) + stored(8)
    assert [one.attempt for one in popped(body, orderly, **info).messages] == [3, 2]
    assert [one.attempt for one in popped(body, **info).messages] == [1, 1]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.POLLING_TIMEOUT, PopStatus.EMPTY),
        (ResponseCode.PULL_NOT_FOUND, PopStatus.EMPTY),
        (ResponseCode.POLLING_FULL, PopStatus.TOO_MANY),
    ],
)
def test_no_message_is_an_answer_too(code: int, status: PopStatus) -> None:
    assert popped(b"", code=code) == PopResult(status)


def test_everything_else_is_a_refusal() -> None:
    with pytest.raises(RefusedError):
        popped(b"", code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)


@pytest.mark.parametrize("info", ["0 0", "0 0 x", "0 0 7;0 0 8", "3 0 7", "0 0 7;"])
def test_a_text_that_says_nothing_certain_is_an_error_of_the_broker(info: str) -> None:
    with pytest.raises(RemoteProtocolError, match="answer to a pop"):
        popped(stored(7), startOffsetInfo="0 0 7", msgOffsetInfo=info)


def test_a_retry_topic_that_a_broker_names_itself_is_hidden_and_its_flag_is_in_the_receipt() -> None:
    result = popped(stored(2, topic="%RETRY%g+T"), startOffsetInfo="2 0 2", msgOffsetInfo="2 0 2")
    assert (result.messages[0].topic, result.messages[0].receipt) == (
        "T", Receipt(2, 1700, 60000, 3, RETRY_V2, "broker-a", 0, 2)
    )  # fmt: skip


def test_requests_about_a_message_name_the_topic_that_it_stands_in() -> None:
    named = [pop_requests.ack("g", "T", FORWARDED._replace(flag=flag)).command.ext["topic"] for flag in range(3)]
    assert named == ["T", "%RETRY%g_T", "%RETRY%g+T"]
    ext = pop_requests.change("g", "T", FORWARDED, 10_000).command.ext
    assert (ext["extraInfo"], ext["offset"], ext["queueId"]) == ("40 1700 60000 3 1 broker-a 2 41", "41", "2")


def test_a_batch_names_each_lease_once_with_a_bit_for_each_message() -> None:
    others = [FORWARDED._replace(offset=offset) for offset in (40, 49)]
    command = pop_requests.ack_batch("g", "T", [FORWARDED, *others, FORWARDED._replace(flag=NORMAL)]).command
    retried, normal = json.loads(command.body)["acks"]
    assert (retried["t"], retried["r"], base64.b64decode(retried["b"])) == ("T", "1", bytes([0b11, 0b10]))
    assert (normal["r"], base64.b64decode(normal["b"])) == ("0", bytes([0b10]))


def test_an_orderly_receipt_and_one_far_from_the_start_of_its_lease_go_alone() -> None:
    assert pop_requests.can_batch(FORWARDED)
    assert not pop_requests.can_batch(FORWARDED._replace(revive_queue=999))
    assert not pop_requests.can_batch(FORWARDED._replace(offset=10_000_000))


def test_a_change_gives_the_receipt_of_a_lease_of_this_message_alone() -> None:
    question = pop_requests.change("g", "T", FORWARDED, 10_000)
    ext = {"popTime": "1800", "invisibleTime": "10000", "reviveQid": "3"}
    assert str(question.read(reply(question.command, ext=ext))) == "41 1800 10000 3 1 broker-a 2 41"
    zeros = dict.fromkeys(ext, "0")
    assert question.read(reply(question.command, ext=zeros)) is FORWARDED


@pytest.mark.parametrize("text", ["", "1 2 3 4 0 broker-a 0", "1 2 3 4 3 b 0 1", "1 2 3 4 0  0 1", "1 2 -3 4 0 b 0 1"])
def test_what_is_no_receipt_is_refused_before_anybody_is_asked(text: str) -> None:
    with pytest.raises(ValueError, match="receipt"):
        Receipt.parse(text)


def test_a_receipt_is_read_as_it_was_written() -> None:
    assert Receipt.parse(str(FORWARDED)) == FORWARDED
