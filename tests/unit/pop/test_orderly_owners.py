"""A queue popped in order stays locked while its owner lives, and not after: over a broker's sockets."""

from __future__ import annotations

from pathlib import Path

from gantry.broker.broker import Broker
from gantry.client.requests import pop_requests
from gantry.leaves.frames import Command
from gantry.pop.owners import RENEWAL_MS_MAX, SILENCE_S_MAX, Owners
from testkit.brokerplay import Peer, peer, running_broker, send
from testkit.popplay import GROUP, Popped, ack_request, change_request, pop_request, popped
from testkit.turning import until

NAMED = {"name": "broker-a"}
OWNER, LEASE_MS, LONG_MS = "client@1", 60, 600_000


def in_order(invisible_ms: int = LONG_MS, owner: str = "other") -> Command:
    return pop_request(32, invisible_ms, order="true", gantryOwner=owner)


async def taken(client: Peer, request: Command) -> list[Popped]:
    reply = await client.call(request)
    return popped(reply) if reply.code == 0 else []


def known(broker: Broker) -> Owners:
    """The owners, of whom none counts as alive only because the broker has just started."""
    assert broker.parts is not None
    owners = broker.parts.pops.owners.owners
    owners.begin(broker.parts.clock.monotonic() - SILENCE_S_MAX)
    return owners


def is_over(broker: Broker) -> bool:
    """Whether the time of the batch of queue 0 is over."""
    assert broker.parts is not None
    batch = broker.parts.pops.orderly.table.get((GROUP, "orders", 0))
    return batch is not None and batch.visible_at_ms < broker.parts.clock.now_ms()


async def lives(client: Peer) -> None:
    assert (await client.call(pop_requests.keep_owners(OWNER, [GROUP]).command)).code == 0


async def popped_by_owner(client: Peer, broker: Broker) -> list[Popped]:
    """Two messages that a living owner popped, and whose time is over."""
    for number in range(2):
        assert (await client.call(send("orders", b"m%d" % number))).code == 0
    await lives(client)
    first = await taken(client, in_order(LEASE_MS, OWNER))
    assert [one.body for one in first] == [b"m0", b"m1"]
    await until(lambda: is_over(broker))
    return first


async def test_a_slow_handlers_messages_are_not_delivered_again_while_it_lives(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **NAMED) as broker, peer(broker) as client:
        owners = known(broker)
        first = await popped_by_owner(client, broker)
        assert await taken(client, in_order()) == []
        assert (await client.call(ack_request(first[0]))).ext["gantryVerdict"] == "open"
        assert await taken(client, in_order()) == []
        owners.keep(OWNER, [GROUP], broker.parts.clock.monotonic() - SILENCE_S_MAX - 1)
        again = await taken(client, in_order())
        assert [(one.body, one.offset) for one in again] == [(b"m1", 1)], "what it has not acknowledged"
        assert (await client.call(ack_request(first[1]))).ext["gantryVerdict"] == "stale"


async def test_a_pop_that_waits_gets_the_messages_of_an_owner_that_died(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **NAMED) as broker, peer(broker) as client, peer(broker) as other:
        owners = known(broker)
        await popped_by_owner(client, broker)
        waiting = pop_request(32, LONG_MS, order="true", gantryOwner="other", pollTime=60_000, bornTime=0)
        await other.send(waiting)
        assert broker.parts is not None
        await until(lambda: len(broker.parts.pops.polling.held) == 1)
        broker.parts.pops.orderly.tick()  # it has looked, and the owner lived
        owners.end(OWNER)  # as if it had been silent for long
        (reply,) = await other.receive()
        assert [one.body for one in popped(reply)] == [b"m0", b"m1"]


async def test_a_goodbye_gives_back_what_was_popped_in_order(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **NAMED) as broker, peer(broker) as client:
        known(broker)
        assert (await client.call(send("orders", b"m0"))).code == 0
        await lives(client)
        assert len(await taken(client, in_order(LONG_MS, OWNER))) == 1
        assert (await client.call(pop_requests.end_owner(OWNER, GROUP).command)).code == 0
        await until(lambda: is_over(broker))
        await lives(client)
        assert [one.body for one in await taken(client, in_order())] == [b"m0"], "it is nobody's any more"


async def test_a_message_that_the_owner_gave_another_time_comes_at_that_time(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **NAMED) as broker, peer(broker) as client:
        known(broker)
        first = await popped_by_owner(client, broker)
        await client.call(change_request(first[0], 0))
        assert [one.body for one in await taken(client, in_order())] == [b"m0", b"m1"]


async def test_a_handler_that_hangs_does_not_lock_a_queue_for_ever(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **NAMED) as broker:
        known(broker).keep(OWNER, [GROUP], broker.parts.clock.monotonic())
        keeps, now_ms = broker.parts.pops.orderly.locks.keeps, broker.parts.clock.now_ms()
        assert keeps(OWNER, GROUP, now_ms - RENEWAL_MS_MAX + 60_000)
        assert not keeps(OWNER, GROUP, now_ms - RENEWAL_MS_MAX)
        assert not keeps("", GROUP, now_ms)


async def test_a_broker_that_starts_again_knows_the_owner_of_a_batch(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **NAMED) as broker, peer(broker) as client:
        await popped_by_owner(client, broker)
    async with running_broker(tmp_path, **NAMED) as broker, peer(broker) as client:
        assert await taken(client, in_order()) == [], "it could not say yet that it lives"
        known(broker)
        await lives(client)
        assert await taken(client, in_order()) == []
        known(broker).end(OWNER)
        assert [one.body for one in await taken(client, in_order())] == [b"m0", b"m1"]
