"""Which messages a producer may send over gRPC: each limit with its code (facts: protocol, section 10.6)."""

from __future__ import annotations

from typing import Any

import pytest

from gantry.proxy import messaging_pb2 as pb
from gantry.proxy import validation
from gantry.proxy.faults import FaultError
from testkit.grpcclient import message

NOW_MS = 1_700_000_000_000
DAY_S = 24 * 3600


def changed(body: bytes = b"tea", properties: dict[str, str] | None = None, **system: Any) -> pb.Message:
    found = message("Tea", body)
    found.user_properties.update(properties or {})
    found.system_properties.MergeFrom(pb.SystemProperties(**system))
    return found


def at(seconds: int) -> dict[str, int]:
    return {"seconds": NOW_MS // 1000 + seconds}


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (changed(b""), pb.MESSAGE_BODY_EMPTY),
        (changed(bytes((4 << 20) + 1)), pb.MESSAGE_BODY_TOO_LARGE),
        (changed(properties={f"p{number}": "v" for number in range(129)}), pb.MESSAGE_PROPERTIES_TOO_LARGE),
        (changed(properties={"p": "v" * (16 << 10)}), pb.MESSAGE_PROPERTIES_TOO_LARGE),
        (changed(keys=["k" * (16 << 10), "k"]), pb.MESSAGE_PROPERTIES_TOO_LARGE),
        (changed(keys=["k"] * 20_000), pb.MESSAGE_PROPERTIES_TOO_LARGE),
        (changed(born_timestamp={"seconds": 1 << 62}), pb.BAD_REQUEST),
        (changed(delivery_timestamp={"seconds": 1 << 62}), pb.BAD_REQUEST),
        (changed(properties={"UNIQ_KEY": "x"}), pb.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (changed(properties={"a\x01b": "x"}), pb.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (changed(properties={"a": "x\x02"}), pb.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (changed(properties={"a": ""}), pb.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (changed(tag=" "), pb.ILLEGAL_MESSAGE_TAG),
        (changed(tag="a|b"), pb.ILLEGAL_MESSAGE_TAG),
        (changed(tag="a\nb"), pb.ILLEGAL_MESSAGE_TAG),
        (changed(keys=["a", ""]), pb.ILLEGAL_MESSAGE_KEY),
        (changed(keys=["a\x7f"]), pb.ILLEGAL_MESSAGE_KEY),
        (changed(message_id=" "), pb.ILLEGAL_MESSAGE_ID),
        (changed(message_group=" "), pb.ILLEGAL_MESSAGE_GROUP),
        (changed(message_group="g" * 64), pb.ILLEGAL_MESSAGE_GROUP),
        (changed(delivery_timestamp=at(DAY_S + 1)), pb.ILLEGAL_DELIVERY_TIME),
        (changed(delivery_timestamp={"seconds": -5}), pb.ILLEGAL_DELIVERY_TIME),
        (changed(orphaned_transaction_recovery_duration={"seconds": 3601}), pb.BAD_REQUEST),
        (changed(message_type=pb.TRANSACTION, delivery_timestamp=at(1)), pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (changed(message_type=99), pb.BAD_REQUEST),
        (changed(body_encoding=99), pb.BAD_REQUEST),
        (changed(lite_topic="a"), pb.ILLEGAL_LITE_TOPIC),
    ],
)
def test_a_message_beyond_a_limit_is_refused_with_its_code(sent: pb.Message, code: int) -> None:
    with pytest.raises(FaultError) as caught:
        validation.checked(sent, NOW_MS)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (changed(), pb.NORMAL),
        (changed(bytes(4 << 20), {f"p{number}": "v" for number in range(128)}), pb.NORMAL),
        (changed(message_group="g" * 63, tag="茶", keys=["k"]), pb.FIFO),
        (changed(delivery_timestamp=at(DAY_S)), pb.DELAY),
        (
            changed(message_type=pb.TRANSACTION, orphaned_transaction_recovery_duration={"seconds": 3600}),
            pb.TRANSACTION,
        ),
    ],
)
def test_a_message_at_a_limit_has_the_type_of_its_properties(sent: pb.Message, kind: int) -> None:
    assert validation.checked(sent, NOW_MS) == kind


def test_a_topic_takes_the_types_of_its_attribute() -> None:
    validation.check_type(pb.FIFO, (pb.NORMAL, pb.FIFO))
    validation.check_type(pb.FIFO, (pb.MESSAGE_TYPE_UNSPECIFIED,))
    with pytest.raises(FaultError, match="expected type is NORMAL, but actual type is FIFO") as caught:
        validation.check_type(pb.FIFO, (pb.NORMAL,))
    assert caught.value.code == pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


def test_the_messages_of_a_request_have_one_topic() -> None:
    with pytest.raises(FaultError, match="no message to send"):
        validation.one_topic([])
    with pytest.raises(FaultError, match="topic in message is not same"):
        validation.one_topic([message("Tea"), message("Milk")])
    assert validation.one_topic([message("Tea"), message("Tea")]).name == "Tea"


def test_a_request_holds_so_many_messages_at_most() -> None:
    with pytest.raises(FaultError) as found:
        validation.one_topic([pb.Message()] * (validation.MESSAGES_MAX + 1))
    assert found.value.code == pb.BAD_REQUEST
