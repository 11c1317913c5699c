"""Which masters a change has to reach."""

from __future__ import annotations

from typing import cast

import pytest

from gantry.client.connections.session import Session
from gantry.client.requests.admin_requests import Cluster
from gantry.client.requests.question import Question
from gantry.clock import SystemClock
from gantry.errors import UnreachableError
from gantry.gateway.brokers import Brokers
from gantry.model.route import BrokerData


class NameServer:
    """Answers with the groups that are registered."""

    def __init__(self) -> None:
        self.masters: dict[str, str | None] = {"b": "127.0.0.1:1"}

    async def ask_nameserver(self, question: Question[Cluster]) -> Cluster:
        groups = {
            name: BrokerData("c", name, {1: "127.0.0.1:9"} if address is None else {0: address})
            for name, address in self.masters.items()
        }
        return Cluster(groups, {"c": tuple(groups)})


async def test_a_change_reaches_a_group_that_has_just_joined() -> None:
    """A queue that was deleted without it would come back with it."""
    server = NameServer()
    brokers = Brokers(["127.0.0.1:1"], SystemClock(), lambda connection, command: False, tuple)
    session, brokers.session = brokers.session, cast(Session, server)
    assert await brokers.masters() == {"b": "127.0.0.1:1"}
    server.masters["a"] = "127.0.0.1:2"
    assert await brokers.every_master() == {"a": "127.0.0.1:2", "b": "127.0.0.1:1"}
    server.masters["b"] = None
    with pytest.raises(UnreachableError, match="b: no master"):
        await brokers.every_master()
    await session.close()
