"""Volumes that differ from the specification are named, with what they have and what is asked for."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from gantry_operator.volumes import amount, differing
from testkit.kube.clusters import cluster
from testkit.kube.operatorbench import CLAIMS, Bench

STORAGE = {"size": "10Gi", "storageClassName": "fast", "accessMode": "ReadWriteOnce"}


def claim(size: str = "10Gi", kind: str = "fast", mode: str = "ReadWriteOnce", capacity: str = "") -> dict[str, Any]:
    spec = {"resources": {"requests": {"storage": size}}, "storageClassName": kind, "accessModes": [mode]}
    return {"spec": spec, "status": {"capacity": {"storage": capacity}} if capacity else {}}


@pytest.mark.parametrize(
    ("there", "asked", "said"),
    [
        (claim(), {}, ""),
        (claim("10240Mi"), {}, ""),
        (claim("20Gi"), {}, ""),
        (claim("1Gi", capacity="100Gi"), {}, ""),
        (claim(kind="slow"), {"storageClassName": ""}, ""),
        (claim("10G"), {}, "store-orders-b0-1 has 10G, not 10Gi"),
        (claim("1Gi", "slow"), {}, "store-orders-b0-1 has 1Gi, class slow, not 10Gi, class fast"),
        (claim(kind=""), {}, "store-orders-b0-1 has class (none), not class fast"),
        (claim(mode="ReadWriteOncePod"), {}, "store-orders-b0-1 has ReadWriteOncePod, not ReadWriteOnce"),
    ],
)
def test_a_volume_that_differs_is_named(there: dict[str, Any], asked: dict[str, str], said: str) -> None:
    wanted = cluster(storage=STORAGE | asked)
    found = differing(wanted, {"store-orders-b0-1": there, "store-orders-b0-4": claim("1Ki"), "another": claim("1Ki")})
    assert found == ([said] if said else [])


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("1Ki", 1024), ("1k", 1000), ("1.5Gi", 1.5 * 2**30), ("2e3", 2000), ("500m", 0.5), ("1E", 1e18)],
)
def test_quantities_are_read_as_kubernetes_writes_them(text: str, bytes_: float) -> None:
    assert amount(text) == Decimal(str(bytes_))


def test_the_status_names_the_volume_and_what_to_do() -> None:
    bench = Bench(storage=STORAGE).works()
    assert bench.conditions()["VolumesMatch"] == ("True", "Match")
    labels = {"labels": {"gantrymq.io/cluster": "orders"}, "uid": "u", "name": "store-orders-b0-2"}
    bench.server.documents[f"{CLAIMS}/store-orders-b0-2"] = {"metadata": labels, **claim("1Gi")}
    bench.once()
    assert bench.conditions()["VolumesMatch"] == ("False", "Differ") and bench.conditions()["Ready"][0] == "True"
    assert "store-orders-b0-2 has 1Gi, not 10Gi" in bench.said("VolumesMatch")
    assert "kubectl delete pvc" in bench.said("VolumesMatch")
