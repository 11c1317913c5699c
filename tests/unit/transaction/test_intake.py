"""What may become a half: switched off, full, too long, dead letters."""

from __future__ import annotations

from gantry.leaves import properties
from gantry.model import names
from gantry.transaction.intake import HalfIntake
from gantry.wire.codes import ResponseCode
from testkit.sendplay import message


def test_transactions_can_be_switched_off() -> None:
    refused = HalfIntake(lambda: 0, 0, lambda group: None).take(message(pairs={"TRAN_MSG": "true"}))
    assert refused is not None and refused.code == ResponseCode.NO_PERMISSION


def test_no_more_than_so_many_are_open() -> None:
    intake = HalfIntake(lambda: 5, 5, lambda group: None)
    refused = intake.take(message(pairs={"TRAN_MSG": "true"}))
    assert refused is not None and refused.code == ResponseCode.SYSTEM_BUSY and "5" in refused.remark


def test_properties_leave_room_for_what_a_put_back_adds() -> None:
    intake = HalfIntake(lambda: 0, 5, lambda group: None)
    refused = intake.take(message(pairs={"TRAN_MSG": "true", "p": "x" * 31_500}))
    assert refused is not None and refused.code == ResponseCode.MESSAGE_ILLEGAL
    fits = message(topic="t" * 127, pairs={"TRAN_MSG": "true", "p": "x" * 31_000}, group="g" * 255)
    assert intake.take(fits) is None
    assert len(fits.properties) < 32767 - 500
    assert properties.get(fits.properties, b"REAL_TOPIC") == b"t" * 127


def test_a_dead_letter_is_no_half_whatever_it_was() -> None:
    intake = HalfIntake(lambda: 0, 5, lambda group: None)
    assert intake.wants(message(pairs={"TRAN_MSG": "true"}))
    assert not intake.wants(message(topic=names.dlq_topic("readers"), pairs={"TRAN_MSG": "true"}))
