"""Counts of popped messages by topic and group."""

from __future__ import annotations

import pytest

from gantry.store.settings import Flush
from testkit.popplay import GROUP, TOPIC, ack_request, pop_request, popped
from testkit.popstoreplay import PopPlay


@pytest.mark.parametrize("what", ["topic", "group"])
def test_what_is_deleted_is_counted_no_more(what: str) -> None:
    """Names of topics and groups come and go for years; records about their leases are handled later still."""
    play = PopPlay(Flush.SYNC)
    for number in range(2):
        play.send(b"m%d" % number)
    play.flush()
    done, _ = popped(play.ask_now(pop_request(2, 500)))
    assert play.ask_now(ack_request(done)).code == 0
    counts = play.pops.service.counts
    tables = counts.by_group, counts.stored, counts.handled, counts.retried
    assert {at[:2] for table in tables for at in table} == {(TOPIC, GROUP)}
    if what == "topic":
        play.topics.delete(TOPIC)
    else:
        play.groups.delete(GROUP)
    for _ in range(40):
        play.pass_ms(100)
        play.flush()
    assert play.visible("rmq_sys_REVIVE_LOG_c"), "the records of its leases were handled"
    assert not any(tables)
