"""Messages that a failover took, in the status and as an Event."""

from __future__ import annotations

from collections.abc import Mapping

from gantry_operator.desired.brokers import as_run
from gantry_operator.snapshot import Answer, GroupSeen
from testkit.kube.operatorbench import PATH, Bench


def test_messages_that_a_failover_took_are_told_once_and_stay_in_the_status() -> None:
    bench = Bench().works()

    def says(**lost: int) -> None:
        async def look(seen: GroupSeen, key: bytes) -> Mapping[int, Answer]:
            return {int(name[1:]): Answer(as_run(seen.group), lost=count) for name, count in lost.items()}

        bench.doors.look = look  # type: ignore[method-assign]
        bench.once()

    for said in ({"m0": 40, "m1": 3}, {"m1": 3}):
        says(**said)
        assert bench.server.documents[PATH]["status"]["groups"][0]["lostMessages"] == 40
        assert bench.server.events().count(("Warning", "MessagesLost")) == 1
    del bench.server.documents[PATH]["status"]["groups"][0]["lostMessages"]  # definitions of an older version
    says(m0=40)
    assert bench.server.events().count(("Warning", "MessagesLost")) == 1
    says(m0=41)
    assert bench.server.events().count(("Warning", "MessagesLost")) == 2
