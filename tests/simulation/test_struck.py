"""Faults that stay, over seeds: somebody leads all the same.  A broker alone can only refuse.  See `struckplan`."""

from __future__ import annotations

import pytest

from gantry.broker.stalled import GATE_STALLED
from gantry.replication.timers import FLUSH_S
from simulation.clients import Producer
from simulation.ledger import Ledger
from simulation.member import Member
from simulation.network import Network
from simulation.test_simulation import seeds
from simulation.world import World

SEEDS = 12  # each kind of fault is among them


@pytest.mark.parametrize("first", [1, *(pytest.param(first, marks=pytest.mark.slow) for first in range(5, SEEDS, 4))])
def test_somebody_leads_and_nothing_is_lost_while_a_fault_stands(first: int) -> None:
    ran = seeds("--kind", "struck", "--seeds", f"{first}:{first + 3}")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.startswith(f"4 seeds from {first} on, 0 red")


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_broker_alone_whose_disk_hangs_refuses_and_is_not_ready_until_it_answers(flush: str) -> None:
    world = World(1)
    network = Network(world)
    member, ledger = Member(world, network, "10.0.0.1", store__flush=flush), Ledger(is_sync=flush == "SYNC_FLUSH")
    producer = Producer(world, network, "10.0.1.1", member.address, ledger, [("orders", 0)])
    producer.delayed = 0.0
    member.start()
    producer.run(producer.main)
    assert world.run(10.0, lambda: producer.acked > 5)
    broker = member.broker
    assert broker is not None and broker.parts is not None and broker._readiness()[0]
    member.hang_disk()
    gate, stalled = broker.parts.gate, broker.parts.stalled
    assert world.run(world.now + 3 * FLUSH_S, lambda: gate.reasons == [GATE_STALLED])
    is_ready, why = broker._readiness()
    assert not is_ready and GATE_STALLED in why and broker._health()[0] and stalled.unanswered_s >= FLUSH_S
    acked = producer.acked
    world.run(world.now + 120.0)
    assert producer.acked == acked and gate.reasons == [GATE_STALLED]
    member.calm()
    assert world.run(world.now + 10.0, lambda: producer.acked > acked + 5) and broker._readiness()[0]
    assert not world.problems
