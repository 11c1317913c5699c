"""Masters that refuse, are away or stand still: one of them keeps nobody from the others, and few wait for it."""

from __future__ import annotations

import pytest

from gantry.errors import GantryError, OutcomeUnknownError, RefusedError, UnreachableError
from gantry.wire.codes import ResponseCode
from gantry_operator.declared.asking import NOBODY_LEADS, NOT_NOW, SILENT, SILENT_S, Asking
from gantry_operator.declared.outcome import Fault
from gantry_operator.declared.territory import BrokerGroup
from testkit.simclock import SimClock

B0, B1 = BrokerGroup("b0", "orders-b0", 1, "zero:10911"), BrokerGroup("b1", "orders-b1", 1, "one:10911")


async def fine(place: BrokerGroup) -> str:
    return place.broker


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (UnreachableError("no"), Fault("b0", False, SILENT)),
        (OutcomeUnknownError("no answer"), Fault("b0", False, SILENT)),
        (RefusedError(ResponseCode.SYSTEM_BUSY, "epoch 7"), Fault("b0", False, NOT_NOW)),
        (RefusedError(ResponseCode.INVALID_PARAMETER, "too much"), Fault("b0", True, "its master refuses: too much")),
        (RefusedError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "old"), Fault("b0", True, "its master refuses: old")),
    ],
)
async def test_who_fails_says_why_and_the_others_answer(error: GantryError, fault: Fault) -> None:
    async def ask(place: BrokerGroup) -> str:
        if place is B0:
            raise error
        return place.broker

    assert await Asking(SimClock()).all([B0, B1], ask) == ({B1: "orders-b1"}, [fault])


async def test_a_group_that_nobody_leads_is_not_asked() -> None:
    found = await Asking(SimClock()).one(BrokerGroup("b0", "orders-b0", 1, ""), fine)
    assert found == Fault("b0", False, NOBODY_LEADS)


async def test_a_master_that_left_a_question_unanswered_is_left_alone_for_a_while() -> None:
    async def silent(_: BrokerGroup) -> str:
        raise OutcomeUnknownError("no answer")

    asking = Asking(clock := SimClock())
    await asking.one(B0, silent)
    assert await asking.one(B0, fine) == Fault("b0", False, SILENT)
    assert await asking.one(B1, fine) == "orders-b1"
    clock.advance(int(SILENT_S * 1000))
    assert await asking.one(B0, fine) == "orders-b0"
