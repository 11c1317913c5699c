"""Which brokers are asked, and when a gateway is ready; without sockets."""

from __future__ import annotations

import asyncio

import pytest

from gantry.errors import RefusedError, UnreachableError
from gantry.gateway import reach as reach_module
from gantry.gateway.reach import Reach
from testkit.turning import until


class Cluster:
    """Brokers by name; `answers` says what each does when it is asked."""

    def __init__(self, **answers: str) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def masters(self) -> dict[str, str]:
        if not self.answers:
            raise UnreachableError("no name server answers")
        return {name: name for name in self.answers}

    async def ask(self, address: str) -> None:
        self.asked.append(address)
        match self.answers[address]:
            case "refuses":
                raise RefusedError(14, "not the master")
            case "gone":
                raise UnreachableError(f"{address} is gone")
            case "silent":
                await asyncio.Event().wait()


async def test_it_is_not_ready_before_a_broker_answered() -> None:
    reach = Reach(Cluster(a="gone").masters, Cluster(a="gone").ask)
    assert not reach.verdict()[0]
    assert not await reach.look()
    assert reach.verdict() == (False, "no broker can be reached: a is gone")


async def test_one_that_answers_is_enough_and_is_the_first_to_be_asked_again() -> None:
    cluster = Cluster(a="gone", b="silent", c="answers")
    reach = Reach(cluster.masters, cluster.ask)
    assert await reach.look()
    cluster.asked.clear()
    assert await reach.look()
    assert cluster.asked == ["c"]
    cluster.answers["c"], cluster.answers["a"] = "silent", "answers"
    assert await reach.look(), "the others are asked when the one that answered is silent"
    assert reach.verdict()[0]


async def test_a_refusal_is_an_answer() -> None:
    cluster = Cluster(a="refuses")
    assert await Reach(cluster.masters, cluster.ask).look()


async def test_a_look_at_many_is_bounded_and_finds_the_one_that_is_there() -> None:
    cluster = Cluster(**{f"b{number}": "gone" for number in range(40)}, last="answers")
    reach = Reach(cluster.masters, cluster.ask)
    looks = 0
    while not await reach.look():
        looks += 1
        assert looks < 4, "each look asks others"
        assert len(cluster.asked) <= 16 * looks


async def test_name_servers_that_are_silent_do_not_hang_a_look() -> None:
    async def silent() -> dict[str, str]:
        await asyncio.Event().wait()
        return {}

    reach = Reach(silent, Cluster().ask)
    assert not await asyncio.wait_for(reach.look(), 60)
    assert "no answer within" in reach.verdict()[1]


async def test_a_gateway_looks_again_after_an_error_of_this_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach_module, "_AGAIN_S", 0.01)
    cluster = Cluster(a="answers")
    failures = [KeyError("a fault of ours")]

    async def masters() -> dict[str, str]:
        if failures:
            raise failures.pop()
        return await cluster.masters()

    reach = Reach(masters, cluster.ask)
    reach.start()
    await until(lambda: reach.verdict()[0])
    await reach.close()
