"""The whole operator, kopf and all, over an API server in memory that repeats, delays, forgets and refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gantry_operator.account import Account
from gantry_operator.api.brokercluster import Key
from gantry_operator.kube import cluster_path
from gantry_operator.leader import LeaseName
from gantry_operator.main import Operator
from gantry_operator.settings import Settings
from testkit.kube.clusters import document
from testkit.kube.fakeapi import FakeApi
from testkit.kube.fakecontrollers import settle
from testkit.kube.fakestore import Store
from testkit.patience import HANG_S
from testkit.ports import free_port

STATEFUL_SETS = "/apis/apps/v1/namespaces/messaging/statefulsets"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/system/leases/gantrymq-operator"
PODS = "/api/v1/namespaces/messaging/pods"


def path_of(name: str) -> str:
    return cluster_path(Key("messaging", name))


class Play:
    """An operator at work on a fake API server."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.store = api.store

    def wish(self, name: str, **brokers: object) -> None:
        """Somebody applies a cluster."""
        wanted = document(**brokers)
        wanted["metadata"]["name"] = name
        self.store.put(path_of(name), wanted)

    def has_sets(self, name: str) -> bool:
        return f"{STATEFUL_SETS}/{name}-b0" in self.store.documents

    def master_label(self, name: str) -> str:
        """Of the first pod; empty while there is none."""
        pod = self.store.documents.get(f"{PODS}/{name}-b0-0", {"metadata": {}})
        return str(pod["metadata"].get("labels", {}).get("gantrymq.io/role", ""))

    def condition(self, name: str, kind: str) -> str:
        found = self.store.documents[path_of(name)].get("status", {}).get("conditions", [])
        return next((str(each["status"]) for each in found if each["type"] == kind), "")


async def until(holds: Callable[[], object], what: str) -> None:
    for _ in range(int(HANG_S / 0.02)):
        if holds():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"never happened: {what}")


@asynccontextmanager
async def at_work(folder: Path) -> AsyncIterator[Play]:
    (folder / "token").write_text("a token")
    api = FakeApi(Store())
    released = {"holderIdentity": "", "leaseDurationSeconds": 1}  # an absent Lease would be waited out
    api.store.put(LEASE, {"metadata": {"namespace": "system", "name": "gantrymq-operator"}, "spec": released})
    async with api.running() as url:
        settings = Settings("image:1", http_port=free_port())
        place, lost = LeaseName("system", "gantrymq-operator"), list[int]()
        operator = Operator(settings, Account(url, folder), place, lost.append)
        task = asyncio.create_task(operator.run())
        try:
            await until(lambda: api.store.get(LEASE)["spec"]["holderIdentity"], "the operator leads")
            await until(lambda: api.watches >= 3, "kopf watches")
            yield Play(api)
        finally:
            operator.stop()
            async with asyncio.timeout(HANG_S):
                assert await task == 0 and not lost
    assert api.store.get(LEASE)["spec"]["holderIdentity"] == "", "anyone who ends in peace releases the Lease"


async def _is_made_and_told(play: Play, name: str) -> None:
    await until(lambda: play.has_sets(name), "what it needs is made")
    settle(play.store)
    await until(lambda: play.condition(name, "Ready") == "True", "people are told")
    await until(lambda: play.master_label(name) == "master", "the master is labelled")


async def _watches_that_break(play: Play) -> None:
    play.wish("orders")
    await _is_made_and_told(play, "orders")
    for gone in (False, True):
        before = play.api.watches
        play.api.break_watches(gone)
        play.wish(f"other-{gone}".lower())
        await until(lambda: play.api.watches >= before + 3, "everything is watched again")  # noqa: B023
        await _is_made_and_told(play, f"other-{gone}".lower())


async def _events_twice_and_late(play: Play) -> None:
    play.api.duplicates = True
    play.wish("orders")
    await _is_made_and_told(play, "orders")
    play.api.held = True
    play.wish("payments")
    await asyncio.sleep(4 * play.api.bookmark_s)
    assert not play.has_sets("payments")
    play.api.let_go()
    await _is_made_and_told(play, "payments")


async def _refusals(play: Play) -> None:
    """A right to list that is taken away: kopf waits for it, the pass says it, and nobody ends."""
    play.api.refused = {"pods": 403}
    play.api.break_watches(gone=True)
    play.wish("orders")
    await until(lambda: play.has_sets("orders"), "what can be made is made")
    settle(play.store)
    play.api.refused = {}
    await _is_made_and_told(play, "orders")


async def _answers_that_get_lost(play: Play) -> None:
    play.store.faults = ["lose", "drop", "409", "503", "", "late", "429"]
    play.wish("orders")
    await _is_made_and_told(play, "orders")
    play.store.deliver()
    play.wish("payments")
    await _is_made_and_told(play, "payments")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "story",
    [
        _watches_that_break,
        pytest.param(_events_twice_and_late, marks=pytest.mark.slow),
        pytest.param(_refusals, marks=pytest.mark.slow),
        pytest.param(_answers_that_get_lost, marks=pytest.mark.slow),
    ],
)
async def test_what_is_wished_is_made_and_told_whatever_happens_on_the_way(
    story: Callable[[Play], Awaitable[None]], tmp_path: Path
) -> None:
    async with at_work(tmp_path) as play:
        await story(play)
