"""Owned objects on a real API server: defaults are no difference, and one pass sets back what others changed."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gantry_operator.account import Account
from gantry_operator.api.brokercluster import Image
from gantry_operator.desired import binding, brokers, nameservers, policies
from gantry_operator.drift import Difference
from gantry_operator.kube import Kube, folder_in, path_of
from gantry_operator.owned import ApplyResult, Owned
from gantry_operator.refusals import Refusals
from testkit.kube import audit
from testkit.kube.api import Document
from testkit.kube.clusters import cluster
from testkit.kube.controlplane import ADMIN_TOKEN, ControlPlane
from testkit.kube.registers import NAMESPACE

JSON_PATCH, STRATEGIC = "application/json-patch+json", "application/strategic-merge-patch+json"
RESOURCES = {"requests": {"cpu": "1000m", "memory": "1.5Gi"}}


class Side:
    """An operator's hands on the real server, and a person's."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        (folder / "token").write_text(ADMIN_TOKEN)
        (folder / "ca.crt").write_bytes(plane.authority.certificate.read_bytes())
        self._account = Account(plane.server, folder)
        self.cluster = cluster(resources=RESOURCES)
        image = Image("image:1", "IfNotPresent", ())
        (group,) = self.cluster.groups()
        self.batches = [
            policies.objects(self.cluster, "gantrymq-system"), binding.objects(self.cluster),
            nameservers.objects(self.cluster, image), brokers.objects(group, image, brokers.Shape(3)),
        ]  # fmt: skip

    def looked(self) -> tuple[list[Difference], ApplyResult]:
        """What differs, and what became of it."""

        async def go() -> tuple[list[Difference], ApplyResult]:
            async with Kube(self._account, self._account.token) as kube:
                owned = Owned(kube)
                labels = {"gantrymq.io/cluster": "orders"}
                sets = await kube.listed(folder_in("StatefulSet", NAMESPACE), labels)
                sets = [{"apiVersion": "apps/v1", "kind": "StatefulSet", **each} for each in sets]
                there = await owned.look(self.cluster, sets, [binding.name_of(self.cluster)])
                differing = owned.differences(self.batches, there)
                outcome = await owned.put(differing, refusals := Refusals())
                assert not refusals, refusals.message
                return [each for batch in differing for each in batch], outcome

        return asyncio.run(go())

    def edit(self, kind: str, name: str, change: Any, media: str) -> None:
        path = f"{folder_in(kind, NAMESPACE)}/{name}?fieldManager=kubectl-edit"
        self.plane.admin.ask("PATCH", path, change, media)

    def specification(self) -> dict[str, Document]:
        """Of every object, without what the server counts."""
        found = {path_of(each): self.plane.admin.get(path_of(each)) for batch in self.batches for each in batch}
        for each in found.values():
            for name in ("resourceVersion", "generation", "managedFields"):
                each["metadata"].pop(name, None)
        return copy.deepcopy(found)


@contextmanager
def none_left(side: Side) -> Iterator[None]:
    yield
    for batch in side.batches:
        for each in batch:
            side.plane.admin.delete(path_of(each))


def test_what_others_add_change_or_remove_is_set_back_and_an_unchanged_cluster_costs_no_write(
    plane: ControlPlane, tmp_path: Path
) -> None:
    side = Side(plane, tmp_path)
    with none_left(side):
        new, outcome = side.looked()
        assert len(new) == len(outcome.applied) and not outcome.stays
        before, writes = side.specification(), len(audit.writes(plane.folder))
        assert side.looked()[0] == [] and len(audit.writes(plane.folder)) == writes

        side.edit("NetworkPolicy", "orders-broker", [{"op": "add", "path": "/spec/ingress/-", "value": {}}], JSON_PATCH)
        containers = [{"name": "broker", "image": "evil:1", "command": ["/bin/sh"]}, {"name": "side", "image": "s:1"}]
        side.edit("StatefulSet", "orders-b0", {"spec": {"template": {"spec": {"containers": containers}}}}, STRATEGIC)
        side.edit("Service", "orders-b0-1", {"spec": {"externalIPs": ["1.2.3.4"]}}, STRATEGIC)
        side.edit("PodDisruptionBudget", "orders-b0", {"spec": {"maxUnavailable": 3}}, STRATEGIC)
        side.edit("Role", "orders-b0", [{"op": "remove", "path": "/rules/0"}], JSON_PATCH)
        side.edit("ServiceAccount", "orders-b0", {"metadata": {"labels": {"gantrymq.io/group": "b7"}}}, STRATEGIC)
        side.edit("Secret", "orders-binding", {"stringData": {"host": "elsewhere", "more": "added"}}, STRATEGIC)

        found, outcome = side.looked()
        assert not outcome.stays
        assert {each.name for each in outcome.repaired} == {each.name for each in found} and len(found) == 7
        assert side.specification() == before
        assert side.looked()[0] == []


@pytest.mark.slow
def test_objects_that_were_restored_from_a_backup_become_the_operators(plane: ControlPlane, tmp_path: Path) -> None:
    """A backup creates objects as they were, under its own name, and forgets who owned which field."""
    side = Side(plane, tmp_path)
    with none_left(side):
        side.looked()
        before = side.specification()
        for path, each in before.items():
            made = copy.deepcopy(each)
            for name in ("uid", "creationTimestamp"):
                del made["metadata"][name]
            made.pop("status", None)
            plane.admin.delete(path)
            plane.admin.create(path.rsplit("/", 1)[0] + "?fieldManager=velero-server", made)
        _, outcome = side.looked()
        assert not outcome.stays
        assert side.looked()[0] == []
