"""Shares of places and turns, by connection and by host."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from gantry.transport.addresses import host_of
from gantry.transport.fairness import FairTurns, SharedPlaces
from testkit.patience import HANG_S


@dataclass(eq=False)
class Client:
    peer: str


def clients(host: str, count: int) -> list[Client]:
    return [Client(f"{host}:{4000 + number}") for number in range(count)]


def fill(places: SharedPlaces, owner: Client) -> int:
    count = 0
    while places.take(owner):
        count += 1
    return count


def test_the_host_of_a_peer_is_its_ip() -> None:
    assert [host_of(peer) for peer in ("10.0.0.1:4711", "::1:4711", "?")] == ["10.0.0.1", "::1", "?"]


def test_one_connection_gets_a_third_of_all_places_and_its_host_half() -> None:
    places = SharedPlaces(900)
    greedy = clients("10.0.0.1", 20)
    assert fill(places, greedy[0]) == 300
    assert sum(fill(places, one) for one in greedy[1:]) == 150
    assert fill(places, Client("10.0.0.2:1")) == 150


def test_bytes_are_shared_as_places_are() -> None:
    places = SharedPlaces(900)
    one, same_host, other = Client("10.0.0.1:1"), Client("10.0.0.1:2"), Client("10.0.0.2:1")
    assert not places.take(one, 901) and places.take(one, 300) and not places.take(one, 1)
    assert not places.take(same_host, 301) and places.take(same_host, 150) and not places.take(same_host, 1)
    assert places.take(other, 300) and places.taken == 750
    for owner, count in ((one, 300), (same_host, 150), (other, 300)):
        places.give_back(owner, count)
    assert places.taken == 0 and not vars(places)["_of_host"] and not vars(places)["_of_owner"]


def test_who_takes_nothing_leaves_nothing_and_may_give_it_back_at_any_time() -> None:
    places = SharedPlaces(900)
    one, same_host = clients("10.0.0.1", 2)
    for first, second in ((0, 0), (0, 300), (300, 0)):
        assert places.take(one, first) and places.take(same_host, second)
        places.give_back(one, first)
        places.give_back(same_host, second)
        assert places.taken == 0 and not vars(places)["_of_host"] and not vars(places)["_of_owner"]


def test_after_several_greedy_hosts_the_next_one_finds_a_place() -> None:
    places = SharedPlaces(10_000)
    for number in range(10):
        for one in clients(f"10.0.0.{number}", 10):
            fill(places, one)
        fresh = Client(f"10.1.0.{number}:1")
        assert places.take(fresh)
        places.give_back(fresh)
    assert places.taken < places.most


def test_places_that_were_given_back_are_free_and_leave_nothing_behind() -> None:
    places = SharedPlaces(9)
    one, other = Client("10.0.0.1:1"), Client("10.0.0.2:1")
    for _ in range(3):
        assert fill(places, one) == 3 and places.take(other)
        for owner in (one, one, one, other):
            places.give_back(owner)
    assert places.taken == 0 and not places._of_host and not places._of_owner
    assert not SharedPlaces(0).take(one)


class Served:
    """Runs work in turns and notes the order; a piece of work ends when the loop has gone round."""

    def __init__(self, at_once: int = 1) -> None:
        self.turns = FairTurns(at_once)
        self.order: list[str] = []
        self.running = 0
        self.most = 0

    async def work(self, owner: Client, name: str) -> None:
        async with self.turns.of(owner):
            self.order.append(name)
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                await asyncio.sleep(0)
            finally:
                self.running -= 1
            if name.startswith("bad"):
                raise ValueError(name)


async def test_who_asks_for_one_thing_waits_for_one_of_a_client_that_asked_for_a_hundred() -> None:
    served = Served()
    greedy, modest = clients("10.0.0.1", 2)
    asked = [served.work(greedy, f"greedy {number}") for number in range(100)]
    await asyncio.gather(*asked, served.work(modest, "modest"))
    assert served.order.index("modest") == 2, "behind the running one, and one that came before"
    assert [name for name in served.order if name != "modest"] == [f"greedy {number}" for number in range(100)]


async def test_the_connections_of_one_host_share_the_turns_of_their_host() -> None:
    served = Served()
    asked = [served.work(one, one.peer) for one in clients("10.0.0.1", 50)]
    await asyncio.gather(*asked, served.work(Client("10.0.0.2:1"), "modest"))
    assert served.order.index("modest") == 2 and len(served.order) == 51


@pytest.mark.parametrize("at_once", [1, 2, 7])
async def test_so_many_run_at_once_whatever_becomes_of_them(at_once: int) -> None:
    served = Served(at_once)
    tasks = [
        asyncio.ensure_future(served.work(one, f"{'bad' if number % 3 else 'good'} {number} {one.peer}"))
        for one in clients("10.0.0.1", 5)
        for number in range(10)
    ]
    await asyncio.sleep(0)
    for task in tasks[::4]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert served.most == at_once and not served.turns._waiting
    served.most = 0
    await asyncio.gather(*(served.work(Client("10.0.0.3:1"), "after") for _ in range(2 * at_once)))
    assert served.most == at_once, "no turn was lost"


async def test_a_turn_given_to_one_that_is_cancelled_at_the_same_moment_goes_on() -> None:
    turns = FairTurns(1)
    one, other, third = clients("10.0.0.1", 3)
    await turns.take(one)
    waiting = asyncio.ensure_future(turns.take(other))
    behind = asyncio.ensure_future(turns.take(third))
    await asyncio.sleep(0)
    turns.give_back()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.wait_for(behind, HANG_S)
