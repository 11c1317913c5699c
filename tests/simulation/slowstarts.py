"""A broker whose start takes as long as a test likes: the fault of a member that is promoted and never serves.

    opening_s   the store takes so long to open, as one does that has many queues or a slow disk
    begin_s     nothing at all happens for so long when a life of the broker begins, whatever is open already
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gantry.broker.broker import Broker

if TYPE_CHECKING:
    from gantry.broker.assemble import Opened
    from gantry.broker.settings.ports import Addresses


@dataclass
class Delays:
    """How long a start takes, in seconds of virtual time; shared by all lives of a member."""

    opening_s: float = 0.0
    begin_s: float = 0.0


class SlowBroker(Broker):
    """A broker that obeys `delays`."""

    delays: Delays

    async def start(self) -> None:
        """Begin late."""
        await asyncio.sleep(self.delays.begin_s)
        await super().start()

    async def _open_store(self, addresses: Addresses) -> Opened:
        if not self._is_carried:
            await asyncio.sleep(self.delays.opening_s)
        return await super()._open_store(addresses)
