"""A mastership with a register: its serving lease goes by the set that the register may hold."""

from __future__ import annotations

from types import SimpleNamespace

from gantry.broker.role import mastership
from gantry.broker.role.mastership import Mastership
from gantry.broker.settings.config import BrokerConfig, Role
from gantry.replication.epochs import EpochTable
from gantry.replication.handshake import Hello
from gantry.replication.members import Member, SyncSet
from gantry.wire.ha import Ack
from testkit.simclock import SimClock

MASTER, SLAVE = Member(0, 1), Member(1, 1)


def begin_mastership(in_sync: SyncSet, clock: SimClock) -> Mastership:
    """Of a master whose log ends at 100."""
    mark = SimpleNamespace(offset=100)
    made = mastership.begin(
        BrokerConfig(role=Role.SYNC_MASTER),
        SimpleNamespace(me=SimpleNamespace(member=MASTER)),  # type: ignore[arg-type]
        SimpleNamespace(written=mark, confirmed=mark),  # type: ignore[arg-type]
        SimpleNamespace(clock=clock),  # type: ignore[arg-type]
        SimpleNamespace(hurry=lambda: None),  # type: ignore[arg-type]
        SimpleNamespace(record=SimpleNamespace(epoch=7, in_sync=in_sync)),  # type: ignore[arg-type]
    )
    assert made is not None
    return made


def test_a_master_is_not_alone_any_more_when_the_register_is_asked_for_a_second_member() -> None:
    """The register may have carried that out without an answer, and a cut may follow: then the second one is elected
    after a suspicion (5 s), which is less than a master serves that is alone (10 s).
    """
    clock = SimClock()
    made = begin_mastership(frozenset({MASTER}), clock)
    tracker, lease = made.tracker, made.serving_lease
    assert lease is not None
    sent_s = clock.monotonic()
    lease.count(tracker.insync.others)
    lease.renewed(sent_s, 15)
    assert lease.is_valid(sent_s + 9.9) and not lease.is_valid(sent_s + 10.0)
    hello = Hello("", "broker-a", 1, "store-1", EpochTable(), 0, 100, 0, 4096, 0, 1, "p")
    assert not tracker.meet(hello, "here", sent_s, 0)
    tracker.share(100, sent_s)
    for now_s in (sent_s, sent_s + 3.0):
        tracker.acknowledge(1, Ack(100, 100, 0), 100, now_s)
    assert tracker.insync.change is not None and tracker.insync.change.target == {MASTER, SLAVE}
    assert lease.is_valid(sent_s + 4.2) and not lease.is_valid(sent_s + 4.3)
