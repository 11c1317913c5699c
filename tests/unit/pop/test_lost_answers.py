"""Pops whose answers were lost while the owner of their leases lives."""

from __future__ import annotations

import asyncio

import pytest

from gantry.store.settings import Flush
from gantry.wire.bodies import MalformedBodyError, dumps
from gantry.wire.codes import RequestCode
from gantry.wire.command import request
from testkit.popplay import ack_request, pop_request, popped
from testkit.popstoreplay import PopPlay


def durably(play: PopPlay, milliseconds: int) -> None:
    for _ in range(milliseconds // 100):
        play.pass_ms(100)
        play.flush()


def end_pops(play: PopPlay, pops: object) -> None:
    """Say that the owners do not know what these pops brought."""
    command = request(RequestCode.END_POP_OWNER, {"clientId": ""}, dumps({"pops": pops}))
    asyncio.run(play.pops.owners.end(play.connection, command))  # type: ignore[arg-type]
    play.flush()


@pytest.mark.parametrize("before", ["at once", "after a renewal", "after a start"])
def test_their_messages_come_again_and_those_of_other_pops_of_the_owner_stay(before: str) -> None:
    play = PopPlay(Flush.SYNC)
    for number in range(3):
        play.send(b"m%d" % number)
    play.flush()
    play.ask_now(pop_request(1, 300, gantryOwner="c", gantryPop="lost"))
    (kept,) = popped(play.ask_now(pop_request(1, 60_000, gantryOwner="c", gantryPop="kept")))
    if before == "after a renewal":
        durably(play, 3_000)
        assert play.pops.owners.owners.renewed == 1
    if before != "at once":
        play.tick()  # saves offsets
        play.flush()
        play.kill()
    end_pops(play, ["lost", "unknown"])
    durably(play, 2_000)
    again = [one.body for _ in range(2) for one in popped(play.ask_now(pop_request(1)))]
    assert sorted(again) == [b"m0", b"m2"]
    assert play.ask_now(ack_request(kept)).ext["gantryVerdict"] == "open"


@pytest.mark.parametrize("pops", [7, ["p"] * 1_001])
def test_what_names_no_pops_or_too_many_is_refused(pops: object) -> None:
    with pytest.raises(MalformedBodyError):
        end_pops(PopPlay(Flush.SYNC), pops)
