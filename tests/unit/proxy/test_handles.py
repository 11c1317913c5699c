"""Signed handles of the proxy."""

from __future__ import annotations

import base64

import pytest

from gantry.client.popped import Receipt
from gantry.client.requests.transaction_requests import Half
from gantry.proxy import messaging_pb2 as pb
from gantry.proxy.faults import FaultError
from gantry.proxy.handles import DeliveredLease, Handles

OLD, NEW = b"0123456789abcdef", b"fedcba9876543210"
LEASE = DeliveredLease(Receipt(3, 1_700_000_000_000, 60_000, 1, 0, "broker-a", 2, 4), 2, True)
HALF = Half("Tea", "an id with blanks", "broker-a", 5, 600)


def test_a_handle_is_read_by_its_group_and_topic_only() -> None:
    handles = Handles([OLD])
    text = handles.receipt("g", "Tea", LEASE)
    assert handles.read_receipt(text, "g", "Tea") == LEASE
    for group, topic in (("h", "Tea"), ("g", "Milk"), ("gTea", "")):
        with pytest.raises(FaultError) as caught:
            handles.read_receipt(text, group, topic)
        assert caught.value.code == pb.INVALID_RECEIPT_HANDLE


def test_a_changed_handle_is_refused_wherever_it_is_changed() -> None:
    handles = Handles([OLD])
    text = handles.receipt("g", "Tea", LEASE)
    body, _, tag = text.partition(".")
    forged = base64.urlsafe_b64encode(base64.urlsafe_b64decode(body + "==").replace(b" 4", b" 5")).decode().rstrip("=")
    wrong = ["", ".", "x", text[:-1], f"{forged}.{tag}", f"{body}.", f"{body}.é", "a" * 5000, text + "A", f" {text}"]
    wrong += [handles.transaction(HALF), Handles([NEW]).receipt("g", "Tea", LEASE)]
    for one in wrong:
        with pytest.raises(FaultError):
            handles.read_receipt(one, "g", "Tea")


def test_handles_of_an_old_key_are_good_while_it_is_in_the_file() -> None:
    text = Handles([OLD]).receipt("g", "Tea", LEASE)
    assert Handles([NEW, OLD]).read_receipt(text, "g", "Tea") == LEASE
    assert Handles([NEW, OLD]).receipt("g", "Tea", LEASE) == Handles([NEW]).receipt("g", "Tea", LEASE)
    with pytest.raises(FaultError):
        Handles([NEW]).read_receipt(text, "g", "Tea")


def test_a_transaction_id_has_all_that_ending_the_half_takes() -> None:
    handles = Handles([OLD])
    assert handles.read_transaction(handles.transaction(HALF), "Tea") == HALF
    assert handles.read_transaction(handles.transaction(HALF), "Milk") is None
    assert handles.read_transaction("01AB", "Tea") is None
    assert handles.read_transaction(handles.receipt("Tea", "", LEASE), "Tea") is None
