"""Objects of one cluster take turns, and those of another do not wait for them."""

from __future__ import annotations

import asyncio
from typing import Any

from gantry_operator.api.declared import Kind
from gantry_operator.declared.kinds import AT_ONCE, DeclaredKinds
from gantry_operator.kube import declared_path
from gantry_operator.metrics import Metrics
from testkit.kube.declared import Document, Server
from testkit.simclock import SimClock
from testkit.turning import until


class Stuck(Server):
    """Does not come back with registers until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go = asyncio.Event()
        self.begun = 0

    async def get(self, path: str) -> Document | None:
        if "/leases/" in path:
            await self.may_go.wait()
        self.begun += "/brokertopics/" in path
        return await super().get(path)


async def test_a_cluster_that_holds_its_objects_up_holds_up_nobody_else() -> None:
    server, metrics = Stuck(), Metrics()
    server.add_cluster()
    server.documents = {path: each | _unled(each) for path, each in server.documents.items()}
    declared = DeclaredKinds(server, SimClock(), metrics, lambda key, after_s: None)
    keys = [server.declare(Kind.TOPIC, f"t{number}") for number in range(2 * AT_ONCE)]
    other = server.declare(Kind.TOPIC, "other", clusterRef={"name": "other"})
    for key in [*keys, other]:
        declared.waking.heard(Kind.TOPIC, server.documents[declared_path(key)], False)
    held = [asyncio.create_task(declared.once(key)) for key in keys]
    await until(lambda: server.begun == AT_ONCE)
    await declared.once(other)
    assert server.condition(other) == ("False", "ClusterNotFound")
    assert server.begun == AT_ONCE + 1 and not any(task.done() for task in held)
    server.may_go.set()
    await asyncio.gather(*held)
    assert {server.condition(key) for key in keys} == {("False", "GroupUnavailable")}
    assert b'gantrymq_operator_passes_total{kind="brokertopic",outcome="done"} 9.0' in metrics.text()
    await declared.close()


def _unled(document: Document) -> dict[str, Any]:
    """Of a register: nobody holds it."""
    return {"spec": {**document["spec"], "holderIdentity": ""}} if "holderIdentity" in document["spec"] else {}
