"""The end of a transaction whose id has to be looked up at the brokers of its topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from gantry.errors import GantryError, RefusedError, UnreachableError
from gantry.model.route import BrokerData, TopicRoute
from gantry.proxy import messaging_pb2 as pb
from gantry.proxy.clients import KnownClients
from gantry.proxy.handles import Handles
from gantry.proxy.transactions import Transactions
from gantry.wire.codes import ResponseCode
from testkit.grpcclient import resource

UNKNOWN = RefusedError(ResponseCode.SYSTEM_ERROR, "no such transaction")


class Brokers:
    """One broker for each of these errors, which is its answer."""

    def __init__(self, errors: Sequence[GantryError]) -> None:
        self.session = self
        self._errors = dict(enumerate(errors))

    async def route(self, topic: str) -> TopicRoute:
        data = [BrokerData("c", f"broker-{number}", {0: str(number)}) for number in self._errors]
        return TopicRoute((), tuple(data))

    async def ask(self, address: str, *_: Any) -> None:
        raise self._errors[int(address)]


@pytest.mark.parametrize("order", [1, -1])
async def test_a_broker_that_does_not_answer_may_have_the_transaction_that_the_others_do_not_know(order: int) -> None:
    brokers = Brokers([UnreachableError("broker-0 is silent"), UNKNOWN][::order])
    request = pb.EndTransactionRequest(topic=resource("Tea"), transaction_id="01AB", resolution=pb.COMMIT)
    with pytest.raises(UnreachableError):
        await Transactions(KnownClients(), Handles([b"0123456789abcdef"])).end(request, cast(Any, brokers))
