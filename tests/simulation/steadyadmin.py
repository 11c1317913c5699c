"""An administrator whose requests come at a steady rate, and who counts which of them end well.

Each call asks for one change and has the three seconds of RocketMQ's clients.  It is tried again within them where the
broker said no, as during a failover; what is in doubt ("not durable yet", or no answer) is not, and did not end well.
The calls take turns:

    a topic is created, or gets other numbers of queues          and is deleted, once in four times
    a group is created, or gets another number of retries        and is deleted
    a group is created, and commits its first offset in a queue
    a client gets the lock of a queue that nobody has

All of these answers wait for slaves (docs/replication.md, Metadata).  What topics and groups have to be by the answers
stands in `known`; a name in doubt is not in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import cycle

from gantry.errors import GantryError
from gantry.leaves.frames import Command
from gantry.transport.client import RemotingClient
from gantry.wire import bodies
from gantry.wire.codes import RequestCode, ResponseCode
from simulation.clients import Client
from simulation.network import Network
from simulation.routes import Route
from simulation.steady import CALL_S, Call
from simulation.world import World

_AGAIN_S = 0.05
_NAMES = 40  # enough that the last call for a name has ended when its turn comes again
_DELETED = 4  # one change of so many is a deletion
# "Done, and not durable yet" is a SYSTEM_ERROR; a member that does not lead says so by another code.
_IN_DOUBT = ResponseCode.SYSTEM_ERROR
Name = tuple[str, str]  # "topic" or "group", and its name


class SteadyAdministrator(Client):
    """See the module."""

    every_s = 0.2

    def __init__(self, world: World, network: Network, host: str, broker: str | Route) -> None:
        super().__init__(world, network, host, broker)
        self.calls: list[Call] = []  # in the order in which they began
        self.known: dict[Name, int | None] = {}  # None: deleted
        self._number = 0
        self._busy: set[Name] = set()
        self._address = ""  # which the route gave last

    async def main(self) -> None:
        """Until stopped."""
        self._remoting = RemotingClient(self.on_requests, chance=self.chance, deaf_s=2.0)
        for make in cycle((self._topic, self._group, self._topic, self._first, self._group, self._lock)):
            if self.is_stopped:
                return
            self._number += 1
            self._tasks.append(self.loop.begin(make()))
            await asyncio.sleep(self.every_s)

    async def _topic(self) -> None:
        name = self._name("topic")
        if self._is_deletion():
            fields = {"topic": name[1]}
            await self._change(name, None, Command(RequestCode.DELETE_TOPIC_IN_BROKER, ext=fields))
            return
        queues = self._value()
        fields = {"topic": name[1], "readQueueNums": str(queues), "writeQueueNums": str(queues), "perm": "6"}
        fields |= {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
        await self._change(name, queues, Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=fields))

    async def _group(self) -> None:
        name = self._name("group")
        if self._is_deletion():
            fields = {"groupName": name[1], "cleanOffset": "true"}
            await self._change(name, None, Command(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext=fields))
            return
        retries = self._value()
        body = bodies.dumps({"groupName": name[1], "retryMaxTimes": retries})
        await self._change(name, retries, Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body))

    async def _first(self) -> None:
        group = f"first-{self._own}-{self._number}"
        body = bodies.dumps({"groupName": group, "retryMaxTimes": 1})
        if await self._call(Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)):
            fields = {"consumerGroup": group, "topic": "orders", "queueId": "0", "commitOffset": "0"}
            await self._call(Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=fields))

    async def _lock(self) -> None:
        queue = {"brokerName": "", "topic": "orders", "queueId": 0}
        asked = {"clientId": self.host, "consumerGroup": f"locks-{self._own}-{self._number}", "mqSet": [queue]}
        command = Command(RequestCode.LOCK_BATCH_MQ, body=bodies.dumps(asked | {"onlyThisBroker": False}))
        await self._call(command, lambda answer: bool(bodies.loads_object(answer.body)["lockOKMQSet"]))

    async def _change(self, name: Name, value: int | None, command: Command) -> None:
        if name in self._busy:
            return  # its last call hangs longer than it may, and counts
        self._busy.add(name)
        self.known.pop(name, None)
        if await self._call(command):
            self.known[name] = value
        self._busy.discard(name)

    async def _call(self, command: Command, is_done: Callable[[Command], bool] = lambda answer: True) -> bool:
        """Whether it was answered with "done", in time or not."""
        call = Call(self._world.now)
        self.calls.append(call)
        end_s = call.begun_s + CALL_S
        while self._world.now < end_s:
            sent_s = self._world.now
            answer = await self._answer(command, end_s - sent_s)
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                call.is_ok = is_done(answer) and self._world.now <= end_s
                call.told = "" if call.is_ok else "not in time, or refused"
                return True
            call.told = "nothing" if answer is None else f"{answer.code} {answer.remark}"
            if answer is None and self._world.now - sent_s > _AGAIN_S:
                return False
            if answer is not None and answer.code == _IN_DOUBT:
                return False
            await asyncio.sleep(_AGAIN_S)
        return False

    async def _answer(self, command: Command, within_s: float) -> Command | None:
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
        return answer

    @property
    def _own(self) -> str:
        return self.host.rpartition(".")[2]

    def _name(self, kind: str) -> Name:
        return kind, f"{kind}-{self._own}-{self._number % _NAMES}"

    def _is_deletion(self) -> bool:
        return self._number // _NAMES % _DELETED == _DELETED - 1

    def _value(self) -> int:
        """One that this name did not have in the round before."""
        return 1 + self._number // _NAMES % 8
