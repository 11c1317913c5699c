"""What may become a half: switched off, full, a group too long, redeliveries and dead letters."""

from __future__ import annotations

import pytest

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


def test_a_producer_group_is_bounded_wherever_it_is_said() -> None:
    intake = HalfIntake(lambda: 0, 5, lambda group: None)
    for pairs, group in (({"PGROUP": "g" * 256}, "g"), ({}, "g" * 256), ({}, "Ω" * 128), ({}, "g\x01h"), ({}, "g\x02")):
        refused = intake.take(message(pairs={"TRAN_MSG": "true"} | pairs, group=group))
        assert refused is not None and refused.code == ResponseCode.MESSAGE_ILLEGAL and "group" in refused.remark
    assert intake.take(message(pairs={"TRAN_MSG": "true"}, group="g" * 255)) is None


@pytest.mark.parametrize("topic", [names.dlq_topic("readers"), names.retry_topic("readers")])
def test_a_redelivery_or_dead_letter_is_no_half_whatever_it_was(topic: str) -> None:
    intake = HalfIntake(lambda: 0, 5, lambda group: None)
    assert intake.wants(message(pairs={"TRAN_MSG": "true"})) and intake.wants(message(sys_flag=4))
    for times in (0, 1):
        assert not intake.wants(message(topic=topic, pairs={"TRAN_MSG": "true"}, reconsume_times=times))
        assert not intake.wants(message(topic=topic, sys_flag=4, reconsume_times=times))
