"""An operator that dies anywhere: no matter who goes on reaches the same state, over the same bounds.

A story is told once without a fault, and then again with a death at each write of it, before the server saw it and
after; with answers that get lost; with requests of the dead that arrive when somebody else has long gone on.
"""

from __future__ import annotations

import asyncio
import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest

from gantry.errors import GantryError
from gantry_operator.api.brokercluster import Key
from gantry_operator.kube import Kube, KubeError, cluster_path
from gantry_operator.reconcile import Reconciler
from gantry_operator.settings import Settings
from testkit.kube.clusters import document
from testkit.kube.fakecontrollers import settle
from testkit.kube.fakekube import FakeKube, KilledError, Mortal
from testkit.kube.fakestore import Request, Store
from testkit.kube.operatorbench import Doors, Loops
from testkit.simclock import SimClock

Document = dict[str, Any]
KEY = Key("messaging", "orders")
PATH = cluster_path(KEY)
PODS = "/api/v1/namespaces/messaging/pods"
PASSES_MAX = 60


def operator(kube: Kube) -> Reconciler:
    return Reconciler(kube, Settings("image:1"), Loops(), Doors(), Ticking())


class Ticking(SimClock):
    """Three seconds pass from one look to the next: no status is put off."""

    def monotonic(self) -> float:
        self.advance(3000)
        return super().monotonic()


def installed() -> Store:
    """A cluster that somebody has just applied."""
    store = Store()
    store.put(PATH, document(replicasPerGroup=3))
    return store


def changed() -> Store:
    """A cluster that works, of which somebody now wants another image and a second group."""
    store = installed()
    converge(store, operator(FakeKube(store)))
    wanted = store.get(PATH)
    wanted["spec"]["image"] = "image:2"
    wanted["spec"]["brokers"]["groups"] = 2
    store.put(PATH, wanted)
    return store


STORIES = ["installed", pytest.param("changed", marks=pytest.mark.slow)]
BEGINNINGS = {"installed": installed, "changed": changed}


@functools.cache
def _beginning(story: str) -> Store:
    return BEGINNINGS[story]()


def begin(story: str) -> Store:
    """A copy of it."""
    return copy.deepcopy(_beginning(story))


def look(store: Store) -> None:
    """The bound that nobody may break: never is more than one member of a group on its way out."""
    going = [path for path, each in store.documents.items() if "deletionTimestamp" in each["metadata"]]
    groups = [path.rsplit("-", 1)[0] for path in going if path.startswith(PODS)]
    assert len(groups) == len(set(groups)), going


def once(store: Store, reconciler: Reconciler) -> bool:
    """A pass and what follows from it; whether it changed anything."""
    before = store.version
    try:
        asyncio.run(reconciler.once(KEY))
    except (KubeError, GantryError):
        return True
    finally:
        look(store)
        settle(store)
    return store.version != before


def converge(store: Store, *operators: Reconciler) -> None:
    """Passes by turns, until nobody changes anything."""
    settle(store)
    calm = 0
    for number in range(PASSES_MAX):
        calm = 0 if once(store, operators[number % len(operators)]) else calm + 1
        if calm > len(operators):
            return
    raise AssertionError("it never settles")


def state(store: Store) -> Document:
    """What is there, without what tells one life from another."""
    here = [path for path in sorted(store.documents) if "/leases/" not in path and "/events/" not in path]
    return {path: _bare(store.documents[path]) for path in here}


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        mortal = ("uid", "resourceVersion", "creationTimestamp", "generation", "observedGeneration", "key",
                  "lastTransitionTime", "gantrymq.io/role", "master", "epoch")  # fmt: skip
        return {key: _bare(each) for key, each in value.items() if key not in mortal}
    return [_bare(each) for each in value] if isinstance(value, list) else value


def reached(story: str) -> Document:
    store = begin(story)
    converge(store, operator(FakeKube(store)))
    return state(store)


def writes_of(story: str) -> int:
    store = begin(story)
    kube = Mortal(store)
    converge(store, operator(kube))
    return kube.writes


def dies(store: Store, reconciler: Reconciler) -> bool:
    """Work until death; False: it did all that there was to do before."""
    settle(store)
    calm = 0
    while calm < 2:
        try:
            calm = 0 if once(store, reconciler) else calm + 1
        except KilledError:
            return True
    return False


@pytest.mark.parametrize(
    ("story", "is_done"),
    [
        ("installed", True),
        ("installed", False),
        pytest.param("changed", True, marks=pytest.mark.slow),
        pytest.param("changed", False, marks=pytest.mark.slow),
    ],
)
def test_a_successor_of_anyone_who_died_at_any_write_reaches_the_same(story: str, is_done: bool) -> None:
    aim, writes = reached(story), writes_of(story)
    assert writes > 10
    for number in range(writes):
        store = begin(story)
        assert dies(store, operator(Mortal(store, number, is_done)))
        converge(store, operator(FakeKube(store)))
        assert state(store) == aim, number


@pytest.mark.parametrize("story", STORIES)
def test_two_at_work_at_once_of_whom_one_dies_reach_the_same(story: str) -> None:
    aim = reached(story)
    for number in range(0, writes_of(story), 2):
        store = begin(story)
        mortal, other = operator(Mortal(store, number)), operator(FakeKube(store))
        settle(store)
        for _ in range(PASSES_MAX):
            try:
                changes = once(store, mortal)
            except KilledError:
                break
            if not once(store, other) and not changes:
                break
        converge(store, other)
        assert state(store) == aim, number


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("fault", ["drop", "lose", "409", "429", "503"])
def test_what_went_wrong_at_any_write_is_done_again(story: str, fault: str) -> None:
    aim = reached(story)
    for number in range(0, writes_of(story), 3):
        store = begin(story)
        store.faults = [""] * number + [fault]
        converge(store, operator(FakeKube(store)))
        assert state(store) == aim, number


@pytest.mark.parametrize("story", STORIES)
def test_a_request_of_the_dead_that_arrives_late_is_put_right(story: str) -> None:
    """The dead one's last write stays on its way; meanwhile people want something else and get it."""
    other = begin(story)
    _wish(other, "image:3")
    converge(other, operator(FakeKube(other)))
    aim, taken = state(other), 0
    for number in range(writes_of(story)):
        store = begin(story)
        store.faults = [""] * number + ["late"]
        dies(store, operator(Mortal(store, number + 1, is_done=False)))
        _wish(store, "image:3")
        successor = operator(FakeKube(store))
        converge(store, successor)
        taken += store.deliver()
        converge(store, successor)
        assert state(store) == aim, number
    assert taken > 3, "some of them were carried out"


def _wish(store: Store, image: str) -> None:
    held = store.get(PATH)
    held["spec"]["image"] = image
    store.put(PATH, held)


@pytest.mark.slow
def test_a_right_that_is_missing_is_said_and_stops_nothing_else() -> None:
    for kind in ("pods", "statefulsets", "services", "poddisruptionbudgets", "secrets", "roles"):
        store = begin("changed")
        store.refused[kind] = 403
        refusals: list[str] = []
        for _ in range(5):
            refusals += _refusals(store, operator(FakeKube(store)))
        conditions = store.get(PATH)["status"]["conditions"]
        said = [*refusals, *(each["message"] for each in conditions)]
        assert any("forbidden" in each for each in said) or kind == "secrets", kind
        store.refused.clear()
        converge(store, operator(FakeKube(store)))
        assert state(store) == reached("changed"), kind


def _refusals(store: Store, reconciler: Reconciler) -> list[str]:
    settle(store)
    try:
        asyncio.run(reconciler.once(KEY))
    except KubeError as error:
        return [str(error)]
    return []


def test_every_write_of_a_pass_is_one_that_may_be_repeated() -> None:
    """Nothing is made without a name, and a pod is deleted by its uid only."""
    seen: list[Request] = []
    store = begin("changed")
    store.written = seen.append
    converge(store, operator(FakeKube(store)))
    assert seen and all(each.body.get("preconditions", {}).get("uid") for each in seen if each.method == "DELETE")
    posts: Callable[[Request], bool] = lambda each: each.method == "POST"  # noqa: E731
    assert all("name" in each.body["metadata"] for each in filter(posts, seen))
