"""How a simulated client finds the broker to speak to.

    Always        one address
    TryAll        one address after the other, until one does what it is asked
    BySeveral     the same with several name servers, of which the next one is asked when one knows no master
    ByRoute       what a name server says: the master, or anyone who is there for who only reads
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

from gantry.errors import GantryError, OutcomeUnknownError
from gantry.leaves.frames import Command
from gantry.transport.client import RemotingClient
from gantry.wire import bodies
from gantry.wire.codes import RequestCode, ResponseCode

_ROUTE_S = 1.0
_EVERYWHERE = "TBW102"  # every broker has it, also before the first message of a topic


class Route(Protocol):
    """Where to ask next."""

    async def address(self, remoting: RemotingClient) -> str:
        """HOST:PORT; OutcomeUnknownError when it is not known."""
        ...

    def missed(self) -> None:
        """There was no answer, or not the one that was wanted."""
        ...


class Always:
    """One broker."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def address(self, remoting: RemotingClient) -> str:
        """That one."""
        del remoting
        return self._address

    def missed(self) -> None:
        """There is no other."""


class TryAll:
    """Several of them."""

    def __init__(self, addresses: Sequence[str], chance: random.Random) -> None:
        self._addresses = list(addresses)
        self._at = chance.randrange(len(addresses))

    async def address(self, remoting: RemotingClient) -> str:
        """The one that did it last."""
        del remoting
        return self._addresses[self._at]

    def missed(self) -> None:
        """Then the next."""
        self._at = (self._at + 1) % len(self._addresses)


class ByRoute:
    """What a name server knows; asked again after each miss."""

    def __init__(self, name_server: str, is_reader: bool = False) -> None:
        self._name_server = name_server
        self._is_reader = is_reader
        self._known = ""

    async def address(self, remoting: RemotingClient) -> str:
        """The master; of a group without one, a slave for who only reads."""
        if not self._known:
            question = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext={"topic": _EVERYWHERE})
            answer = await remoting.invoke(self._name_server, question, _ROUTE_S)
            if answer.code == ResponseCode.SUCCESS:
                self._known = self._choose(bodies.loads_object(answer.body))
        if not self._known:
            raise OutcomeUnknownError("the name server knows no broker")
        return self._known

    def _choose(self, route: dict[str, object]) -> str:
        brokers = route["brokerDatas"]
        assert isinstance(brokers, list)
        addresses = {int(number): str(address) for each in brokers for number, address in each["brokerAddrs"].items()}
        if self._is_reader and addresses:
            return addresses[min(addresses)]
        return addresses.get(0, "")

    def missed(self) -> None:
        """It may have changed."""
        self._known = ""


class BySeveral:
    """What one of several name servers knows: the same one as long as it answers and knows a master."""

    def __init__(self, name_servers: Sequence[str], chance: random.Random, is_reader: bool = False) -> None:
        self._routes = [ByRoute(name_server, is_reader) for name_server in name_servers]
        self._at = chance.randrange(len(name_servers))

    async def address(self, remoting: RemotingClient) -> str:
        """As `ByRoute`."""
        at = self._at
        try:
            return await self._routes[at].address(remoting)
        except GantryError:
            if at == self._at:  # of questions that are asked at the same time one goes on to the next
                self._at = (at + 1) % len(self._routes)
            raise

    def missed(self) -> None:
        """It may have changed."""
        self._routes[self._at].missed()
