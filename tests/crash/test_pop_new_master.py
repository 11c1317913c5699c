"""A slave that leads with older tables than its log: popped messages are those of the log."""

from __future__ import annotations

import random

import pytest

from gantry.store.settings import Flush
from testkit.popgroupplay import PopGroup
from testkit.popplay import ack_request, pop_request, popped


@pytest.mark.parametrize("flush", [Flush.SYNC, Flush.ASYNC])
def test_a_new_master_goes_on_behind_the_leases_in_its_log(flush: Flush) -> None:
    group = PopGroup(flush)
    for number in range(4):
        group.send(b"m%d" % number)
    group.flush()
    done, leased = popped(group.ask_now(pop_request(2, 5_000)))
    assert group.ask_now(ack_request(done)).ext["gantryVerdict"] == "open"
    group.fail_over(random.Random(1))  # nothing was told since the first message
    assert [one.body for one in popped(group.ask_now(pop_request(1)))] == [b"m2"]
    assert group.ask_now(ack_request(done)).ext["gantryVerdict"] == "done"
    for _ in range(60):
        group.pass_ms(100)
        group.flush()
    assert group.ask_now(ack_request(leased)).ext["gantryVerdict"] == "stale"
    again = [one.body for _ in range(2) for one in popped(group.ask_now(pop_request(1, 60_000)))]
    assert sorted(again) == [b"m1", b"m3"]
