"""What a queue is: attributes of its topic, ranges, handles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantry.client.popped import Receipt
from gantry.gateway.signed import SignedTexts
from gantry.model import httpqueue
from gantry.queues import attributes, xmlin
from gantry.queues.attributes import KnownQueue, QueueSettings
from gantry.queues.faults import QueueFaultError
from gantry.queues.handles import DelayedPlace, QueueHandles

RECEIPT = Receipt(3, 1_700_000_000_000, 60_000, 1, 0, "broker-a", 2, 4)
RECALL = "djEgVGVhIGJyb2tlci1hIDE3MDAwMDAwMDAwMDAgQUJD"  # v1 Tea broker-a 1700000000000 ABC
TEA = KnownQueue("Tea", "0123456789abcdef", QueueSettings(1, 1024, 60, 2, 3, True), 5, 7)


def test_a_queue_is_read_back_from_the_attributes_of_its_topic() -> None:
    given_ = attributes.stored(TEA)
    assert attributes.of_topic("Tea", given_) == TEA
    assert not [name for name, value in given_.items() if httpqueue.fault(name, value)], "what brokers accept"
    assert attributes.of_topic("Tea", {"message.type": "NORMAL"}) is None


def test_attributes_that_cannot_be_read_count_as_the_default() -> None:
    found = attributes.of_topic("Tea", {httpqueue.ID: "x", httpqueue.LIFE_S: "long", httpqueue.CREATED_S: "-1"})
    assert found == KnownQueue("Tea", "x")


@given(st.dictionaries(st.sampled_from([httpqueue.ID, *httpqueue.NUMBERS, httpqueue.LOGGING]), st.text()))
def test_any_attributes_give_a_queue_or_none(given_: dict[str, str]) -> None:
    attributes.of_topic("Tea", given_)


def test_only_what_a_document_names_is_changed() -> None:
    root = xmlin.read(b"<Queue><DelaySeconds>9</DelaySeconds><QueueType>new</QueueType><VisibilityTimeout/></Queue>")
    assert attributes.asked(root, TEA.settings) == QueueSettings(9, 1024, 60, 2, 3, True)
    with pytest.raises(QueueFaultError, match="expected Queue"):
        attributes.asked(xmlin.read(b"<Message/>"), TEA.settings)


def test_a_handle_says_where_its_message_is() -> None:
    handles = QueueHandles(SignedTexts([b"0123456789abcdef"]))
    assert handles.read(TEA, handles.leased(TEA, RECEIPT)) == RECEIPT
    assert handles.read(TEA, handles.delayed(TEA, RECALL)) == DelayedPlace("broker-a", RECALL)


def test_a_handle_of_a_deleted_queue_is_void_and_of_another_queue_malformed() -> None:
    handles = QueueHandles(SignedTexts([b"0123456789abcdef"]))
    text = handles.leased(TEA, RECEIPT)
    again, other = KnownQueue("Tea", "f" * 16), KnownQueue("Milk", TEA.incarnation)
    for queue, code in ((again, "MessageNotExist"), (other, "ReceiptHandleError")):
        with pytest.raises(QueueFaultError) as caught:
            handles.read(queue, text)
        assert caught.value.code == code


@given(st.text(max_size=80))
def test_no_other_text_is_a_handle(text: str) -> None:
    with pytest.raises(QueueFaultError) as caught:
        QueueHandles(SignedTexts([b"0123456789abcdef"])).read(TEA, text)
    assert caught.value.code == "ReceiptHandleError"


def test_the_longest_handles_fit_into_512_characters() -> None:
    handles = QueueHandles(SignedTexts([b"0123456789abcdef"]))
    queue = KnownQueue("q" * 120, "f" * 16)
    far = (1 << 63) - 1
    leased = Receipt(far, far, 43_200_000, 7, 1, "b" * 60, 15, far)
    assert len(handles.leased(queue, leased)) <= 512
