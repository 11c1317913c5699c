"""Where a sink is at home, by what groups say that a test wrote."""

from __future__ import annotations

import asyncio

import pytest

from gantry.client.blockingsinks import BlockingSinks
from gantry.errors import RefusedError, UnreachableError
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply
from testkit.scripted import NAMESERVER, Answer, ScriptedCluster, body, refuse

LIST = RequestCode.LIST_SINKS
Homes = dict[str, tuple[list[str], list[str]]]  # by group: homes by its decisions, homes by its open halves


def info(home: str) -> dict[str, object]:
    return {
        "sinkId": "s", "home": home, "batch": 3, "done": True, "parts": 0, "aborted": 0, "decidedMs": 9
    }  # fmt: skip


def part(home: str) -> dict[str, object]:
    place: dict[str, object] = {"sinkId": "s", "batch": 4, "part": "0-x", "home": home}
    return {**place, "halves": 2, "ageMs": 5000, "verdict": "undecided"}


def home_of_s(known: Homes) -> str:
    """The home of the sink `s` in a cluster of broker-a and broker-b."""

    async def story() -> str:
        async with ScriptedCluster(2) as cluster:
            for group in ("broker-a", "broker-b"):
                decided, opened = known.get(group, ([], []))
                sinks, parts = [info(home) for home in decided], [part(home) for home in opened]
                page = {"sinks": sinks, "parts": parts, "sinkCount": len(sinks), "partCount": len(parts)}
                cluster.answers[group, LIST] = body(page)

            def ask() -> str:
                with BlockingSinks(cluster.nameserver, 10.0) as sinks:
                    return sinks.home_of("s")

            return await asyncio.to_thread(ask)

    return asyncio.run(story())


def test_a_sink_that_nobody_knows_gets_the_home_that_its_name_chooses() -> None:
    assert home_of_s({}) in ("broker-a", "broker-b")


@pytest.mark.parametrize("home", ["broker-a", "broker-b"])
def test_one_that_decided_about_a_sink_is_its_home(home: str) -> None:
    assert home_of_s({home: ([home], [])}) == home


def test_open_halves_name_the_home_also_while_no_name_server_knows_it() -> None:
    # broker-z decided, and went before broker-b was told: broker-b must not decide the batch a second time.
    assert home_of_s({"broker-b": ([], ["broker-z"])}) == "broker-z"


def test_halves_that_name_another_home_than_a_decision_are_for_a_person() -> None:
    with pytest.raises(RefusedError, match="several homes: broker-a, broker-b"):
        home_of_s({"broker-a": (["broker-a"], ["broker-a"]), "broker-b": ([], ["broker-b"])})


@pytest.mark.parametrize(
    "first",
    [refuse(ResponseCode.SYSTEM_BUSY), lambda command: reply(command, body=b"no JSON")],
    ids=["refuses", "unreadable"],
)
async def test_a_name_server_that_refuses_or_cannot_be_read_does_not_hide_the_groups_of_another_one(
    first: Answer,
) -> None:
    async with ScriptedCluster() as strange, ScriptedCluster() as well:
        strange.answers[NAMESERVER, RequestCode.GET_BROKER_CLUSTER_INFO] = first

        def ask(*nameservers: str) -> list[str]:
            with BlockingSinks(";".join(nameservers), 10.0) as sinks:
                return list(sinks.cluster().groups)

        assert await asyncio.to_thread(ask, strange.nameserver, well.nameserver) == ["broker-a"]
        with pytest.raises(UnreachableError, match="no broker is registered"):
            await asyncio.to_thread(ask, strange.nameserver)
