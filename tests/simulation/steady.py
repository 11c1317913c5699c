"""A producer that sends at a steady rate, whether answers come or not, and what share of its calls ended well.

A producer that waits for each answer sends little while answers are late, and so hides how many calls of an
application would fail.  This one begins a call every `every_s`, however many are under way.  A call has three seconds,
as with RocketMQ's Java producer, and is tried again within them where the broker said no; what is in doubt is not.
A call ended well when SEND_OK came in time: codes that say "stored, not confirmed" do not count.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gantry.errors import GantryError
from gantry.leaves.frames import Command
from gantry.transport.client import RemotingClient
from gantry.wire.codes import ResponseCode
from simulation.clients import Producer
from simulation.ledger import Attempt, Ledger, Place
from simulation.network import Network
from simulation.routes import Route
from simulation.world import World
from testkit.brokerplay import send

CALL_S = 3.0
_AGAIN_S = 0.05
_IN_DOUBT = (ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT)


@dataclass(slots=True)
class Call:
    """One call of an application."""

    begun_s: float
    is_ok: bool = False
    told: str = ""  # last, when it was not


class Steady(Producer):
    """See the module."""

    every_s = 0.1

    def __init__(
        self, world: World, network: Network, host: str, broker: str | Route, ledger: Ledger, places: list[Place]
    ) -> None:
        super().__init__(world, network, host, broker, ledger, places)
        self.calls: list[Call] = []  # in the order in which they began
        self._address = ""  # which the route gave last

    async def main(self) -> None:
        """Until stopped."""
        self._remoting = RemotingClient(self.on_requests, chance=self.chance, deaf_s=2.0)
        while not self.is_stopped:
            self._tasks.append(self.loop.begin(self._call()))
            await asyncio.sleep(self.every_s)

    async def _call(self) -> None:
        call = Call(self._world.now)
        self.calls.append(call)
        end_s = call.begun_s + CALL_S
        while not call.is_ok and self._world.now < end_s:
            made = self.attempt()
            command = send(made.topic, made.body, made.queue_id, {"UNIQ_KEY": made.body.decode()[:30]})
            answer = await self._answer(made, command, end_s - self._world.now)
            if answer is None or answer.code in _IN_DOUBT:
                call.told = "nothing" if answer is None else str(answer.code)
                if self._world.now - made.sent_at > _AGAIN_S or answer is not None:
                    return
            elif answer.code == ResponseCode.SUCCESS:
                made.offset = int(answer.ext["queueOffset"])
                self.acknowledged(made)
                call.is_ok = self._world.now <= end_s
            else:
                call.told = f"{answer.code} {answer.remark}"
            await asyncio.sleep(_AGAIN_S)

    async def _answer(self, made: Attempt, command: Command, within_s: float) -> Command | None:
        """The answer; None when none came.  The route is not followed any more where it was no good."""
        assert self._remoting is not None
        address = ""
        try:
            address = self._address = await self._route.address(self._remoting)
            answer = await self._remoting.invoke(address, command, within_s)
        except GantryError:
            answer = None
        if (answer is None or answer.code != ResponseCode.SUCCESS) and address == self._address:
            self._route.missed()
            self._address = ""
        self.asked = address
        return answer


def share_ok(calls: list[Call], from_s: float, until_s: float) -> tuple[int, int]:
    """How many of the calls that began between these moments ended well, and how many there were."""
    judged = [call for call in calls if from_s <= call.begun_s < until_s]
    return sum(call.is_ok for call in judged), len(judged)


def why_not(calls: list[Call], from_s: float) -> str:
    """What calls that did not end well were told most often."""
    told = [call.told for call in calls if call.begun_s >= from_s and not call.is_ok]
    return max(set(told), key=told.count) if told else "nothing yet"


