"""Leases that have ended: their open messages come again, once."""

from __future__ import annotations

from gantry.append.writing import GATE_DISK_FULL
from gantry.errors import Refusal
from gantry.pop import handle, records
from gantry.pop.records import LeaseRecord
from gantry.store.settings import Flush
from gantry.wire.codes import ResponseCode
from testkit.popplay import GROUP, TOPIC, pop_request
from testkit.popstoreplay import PopPlay

RETRY = handle.retry_topic(TOPIC, GROUP)


def test_a_lease_that_is_delivered_twice_has_one_copy_of_its_message_also_after_a_full_disk() -> None:
    play = PopPlay(Flush.ASYNC)
    play.send(b"popped")
    assert play.ask_now(pop_request(1, 100)).code == 0
    service = play.pops.service
    ((queue, _),) = service.book.queues()
    (lease,) = service.book.of(queue)
    again = LeaseRecord(lease.key, lease.end_ms, lease.offsets, lease.owner, lease.generation)
    assert not isinstance(service.append([records.lease_message(again, service.place(lease.revive_queue))]), Refusal)
    play.clock.advance(500)
    for _ in play.service.deliver() or ():
        pass
    low, high = play.store.queue_range(service.revive_topic, lease.revive_queue) or (0, 0)
    assert high - low == 2, "both records are handled together"
    play.gate.shut(GATE_DISK_FULL, Refusal(ResponseCode.SYSTEM_ERROR, "the disk is full"))
    for _ in play.pops.reviver.run():
        pass
    assert service.book.open == 1 and play.visible(RETRY) == []
    play.gate.reopen(GATE_DISK_FULL)
    play.pass_ms(1_000)
    assert service.book.open == 0 and play.visible(RETRY) == [b"popped"]
    assert play.pops.reviver.following[lease.revive_queue] == high
