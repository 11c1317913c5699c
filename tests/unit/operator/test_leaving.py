"""Objects are handed back: our finalizers go, those of others stay, whatever changes meanwhile."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from typing import Any

import pytest

from gantry_operator.kube import KubeError
from gantry_operator.leaving import hand_back

Document = dict[str, Any]
ROOT = "/apis/gantrymq.io/v1alpha1"


class Server:
    """Objects by path; `conflicts` of the first writes come to nothing, and `refuses` a folder with a status."""

    def __init__(self, **finalizers: list[str]) -> None:
        self.objects: dict[str, Document] = {}
        for name, wanted in finalizers.items():
            plural, namespace, rest = name.split("_")
            path = f"{ROOT}/namespaces/{namespace}/{plural}/{rest}"
            about = {"namespace": namespace, "name": rest, "resourceVersion": "1", "finalizers": wanted}
            self.objects[path] = {"metadata": about if wanted else about | {"finalizers": None}}
        self.conflicts = 0
        self.refuses: dict[str, int] = {}

    async def get(self, path: str) -> Document | None:
        raise AssertionError(path)

    async def delete(self, path: str, uid: str) -> None:
        raise AssertionError(path)

    async def listed(self, folder: str, labels: Mapping[str, str]) -> list[Document]:
        if folder in self.refuses:
            raise KubeError(f"GET {folder}", self.refuses[folder], "as the test wants it")
        plural = folder.rsplit("/", 1)[1]
        inside = folder if "/namespaces/" in folder else ROOT
        found = [each for path, each in self.objects.items() if path.startswith(f"{inside}/") and f"/{plural}/" in path]
        return copy.deepcopy(found)

    async def merge(self, path: str, change: Document) -> None:
        if self.conflicts:
            self.conflicts -= 1
            raise KubeError("PATCH", 409, "the object has been modified")
        assert change["metadata"]["resourceVersion"] == "1"
        self.objects[path]["metadata"]["finalizers"] = change["metadata"]["finalizers"]

    def left(self) -> list[str]:
        return [one for each in self.objects.values() for one in each["metadata"]["finalizers"] or []]


def all_kinds() -> Server:
    return Server(
        brokerclusters_one_orders=["gantrymq.io/claims", "example.com/audit"],
        brokerclusters_one_plain=[],
        brokertopics_one_tea=["gantrymq.io/delete-from-brokers"],
        consumergroups_two_shop=["gantrymq.io/delete-from-brokers"],
    )


@pytest.mark.parametrize(("namespaces", "handed"), [((), 3), (("one", "two"), 3), (("one",), 2)])
def test_our_finalizers_go_where_we_look_and_those_of_others_stay(namespaces: tuple[str, ...], handed: int) -> None:
    server = all_kinds()
    assert asyncio.run(hand_back(server, namespaces)) == handed
    assert sorted(server.left()) == ["example.com/audit", *["gantrymq.io/delete-from-brokers"] * (3 - handed)]


def test_an_object_that_changed_meanwhile_is_read_again() -> None:
    server = all_kinds()
    server.conflicts = 2
    assert asyncio.run(hand_back(server, ())) == 3 and server.left() == ["example.com/audit"]
    again = all_kinds()
    again.conflicts = 1_000
    with pytest.raises(KubeError, match="does another operator run"):
        asyncio.run(hand_back(again, ()))


def test_a_namespace_that_is_gone_does_not_hold_the_others() -> None:
    server = all_kinds()
    for plural in ("brokerclusters", "brokertopics", "consumergroups"):
        server.refuses[f"{ROOT}/namespaces/gone/{plural}"] = 403
    assert asyncio.run(hand_back(server, ("gone", "one", "two"))) == 3
    server.refuses = {f"{ROOT}/brokerclusters": 403}
    with pytest.raises(KubeError):
        asyncio.run(hand_back(server, ()))
