"""Every kind of asyncio client, and how to bring one to work that does not end by itself.

    client = kind.make(play)
    await kind.start(client)
    await kind.occupy(play, client)     # from here on it has tasks, connections, and calls under way
    await kind.stop(client)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gantry.client.admin import Admin
from gantry.client.brokeradmin import BrokerAdmin
from gantry.client.consumer import Consumer, ReceivedMessage, Sql
from gantry.client.deadletters import DeadLetters
from gantry.client.orderly import OrderlyConsumer
from gantry.client.producer import Message, Producer, ProducerSettings
from gantry.client.pullconsumer import PullConsumer
from gantry.client.puller import Puller
from gantry.client.simpleconsumer import SimpleConsumer
from gantry.client.transaction import Outcome, StoredMessage, TransactionProducer
from gantry.leaves.frames import Command, encode
from gantry.model.route import MessageQueue
from gantry.transport.client import RemotingClient
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply, request
from testkit.onequeue import FIRST, MASTER, PULL, SLAVE, Group, member, record
from testkit.scripted import NAMESERVER, refuse, silence
from testkit.scriptedtransaction import check
from testkit.turning import until

QUEUE = MessageQueue("T", MASTER, 0)
PATIENT = ProducerSettings(timeout_s=3600.0, attempt_timeout_s=3600.0)
SETTINGS = replace(FIRST, stop_timeout_s=0.01, request_timeout_s=3600.0)
FILTERED = {"T": Sql("a = 1")}  # a start that asks a broker


@dataclass
class Play:
    """A cluster for one client, what the client's user has under way, and how many of its functions hang."""

    cluster: Group
    folder: Path
    under_way: list[asyncio.Task[object]] = field(default_factory=list)
    hanging: int = 0

    def call(self, work: Coroutine[Any, Any, object]) -> None:
        self.under_way.append(asyncio.ensure_future(work))

    async def hang(self, _: object = None) -> None:
        self.hanging += 1
        await asyncio.Event().wait()

    async def listen(self, message: ReceivedMessage) -> None:
        if message.body == b"1":
            raise RuntimeError("the second message fails")
        await self.hang()

    async def check(self, _: StoredMessage) -> Outcome:
        await self.hang()
        return Outcome.UNKNOWN

    def dial(self, client: Any) -> None:
        """Let the client have an attempt to connect that does not end."""
        remoting_of(client)._attempts["127.0.0.1:1"] = asyncio.ensure_future(asyncio.Event().wait())

    def ask_client(self, command: Command) -> None:
        (connection,) = self.cluster.connections(MASTER)
        connection.write(encode(command))


def remoting_of(client: Any) -> RemotingClient:
    """What has the client's connections."""
    remoting: RemotingClient = client._session._remoting if hasattr(client, "_session") else client._remoting
    return remoting


class Kind:
    """How to make one kind of client, and to bring it to work that does not end by itself."""

    unregisters = True

    def make(self, play: Play) -> Any:
        raise NotImplementedError

    async def occupy(self, play: Play, client: Any) -> None:
        raise NotImplementedError

    async def start(self, client: Any) -> None:
        await client.start()

    async def stop(self, client: Any) -> None:
        await client.stop()


class Produces(Kind):
    def make(self, play: Play) -> Any:
        play.cluster.answers[MASTER, RequestCode.SEND_MESSAGE_V2] = silence
        return Producer("p", nameserver=play.cluster.nameserver, settings=PATIENT)

    async def occupy(self, play: Play, client: Any) -> None:
        play.call(client.send(Message("T", b"x")))
        await until(lambda: play.cluster.asked(MASTER, RequestCode.SEND_MESSAGE_V2))


class Transacts(Kind):
    def make(self, play: Play) -> Any:
        return TransactionProducer("p", play.check, nameserver=play.cluster.nameserver)

    async def occupy(self, play: Play, client: Any) -> None:
        await until(lambda: play.cluster.connections(MASTER))
        play.ask_client(check("ID1"))
        await until(lambda: play.hanging)


class Iterates(Kind):
    def make(self, play: Play) -> Any:
        return member(play.cluster, SETTINGS)

    async def occupy(self, play: Play, client: Any) -> None:
        async def iterate() -> None:
            async for _ in client:
                await play.hang()

        play.call(iterate())
        await until(lambda: play.hanging)


class Listens(Kind):
    """Messages 0 and 2 are in work, 1 waits for its redelivery, and a tool has one consumed."""

    def make(self, play: Play) -> Any:
        play.cluster.answers[MASTER, RequestCode.CONSUMER_SEND_MSG_BACK] = refuse(ResponseCode.SYSTEM_ERROR)
        where = play.cluster.nameserver
        return Consumer("g", nameserver=where, subscription=FILTERED, settings=SETTINGS, listener=play.listen)

    async def occupy(self, play: Play, client: Any) -> None:
        await until(lambda: play.hanging == 2 and client._source._redelivery._waiting)
        ext = {"consumerGroup": "g", "brokerName": MASTER}
        play.ask_client(request(RequestCode.CONSUME_MESSAGE_DIRECTLY, ext, record(0)))
        await until(lambda: play.hanging == 3)


class Broadcasts(Iterates):
    def make(self, play: Play) -> Any:
        return member(play.cluster, replace(SETTINGS, broadcast=True, offsets_folder=str(play.folder)))


class Orders(Kind):
    def make(self, play: Play) -> Any:
        def lock(command: Command) -> Command:
            return reply(command, body=json.dumps({"lockOKMQSet": json.loads(command.body)["mqSet"]}).encode())

        play.cluster.answers[MASTER, RequestCode.LOCK_BATCH_MQ] = lock
        where, listen = play.cluster.nameserver, play.hang
        return OrderlyConsumer("g", nameserver=where, subscription=FILTERED, settings=SETTINGS, listener=listen)

    async def occupy(self, play: Play, client: Any) -> None:
        await until(lambda: play.hanging)


class Polls(Kind):
    def make(self, play: Play) -> Any:
        play.cluster.answers[MASTER, RequestCode.LITE_PULL_MESSAGE] = play.cluster.answers[MASTER, PULL]
        return PullConsumer("g", nameserver=play.cluster.nameserver, subscription=FILTERED, settings=SETTINGS)

    async def occupy(self, play: Play, client: Any) -> None:
        while not await client.poll():
            pass
        play.call(client.poll(3600.0))


class PollsAssigned(Polls):
    unregisters = False

    def make(self, play: Play) -> Any:
        super().make(play)
        return PullConsumer("g", nameserver=play.cluster.nameserver, settings=SETTINGS)

    async def occupy(self, play: Play, client: Any) -> None:
        await client.assign([QUEUE])
        await super().occupy(play, client)


class Receives(Kind):
    """One message is received; a pop is under way, and a cancelled one has to give back what it brings."""

    def make(self, play: Play) -> Any:
        for code in (RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, RequestCode.ACK_MESSAGE):
            play.cluster.answers[MASTER, code] = refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        play.cluster.answers[MASTER, RequestCode.POP_MESSAGE] = silence
        return SimpleConsumer("g", nameserver=play.cluster.nameserver, subscription=FILTERED)

    async def occupy(self, play: Play, client: Any) -> None:
        cancelled = asyncio.ensure_future(client.receive())
        await until(lambda: play.cluster.asked(MASTER, RequestCode.POP_MESSAGE))
        cancelled.cancel()
        play.call(client.receive(wait_s=3600.0))
        await until(lambda: len(play.cluster.asked(MASTER, RequestCode.POP_MESSAGE)) == 2)


class ListensToPops(Receives):
    """Messages are in work, one failed and its broker does not say what becomes of it, and a pop is held."""

    def make(self, play: Play) -> Any:
        super().make(play)
        pops: list[Command] = []

        def pop(command: Command) -> Command | None:
            pops.append(command)
            if len(pops) > 1:
                return None
            infos = {"startOffsetInfo": "0 0 0", "msgOffsetInfo": "0 0 0,1,2", "restNum": "0"}
            ext = {"popTime": "1", "invisibleTime": "60000", "reviveQid": "0", **infos}
            return reply(command, ext=ext, body=b"".join(map(record, range(3))))

        play.cluster.answers[MASTER, RequestCode.POP_MESSAGE] = pop
        play.cluster.answers[MASTER, RequestCode.CHANGE_MESSAGE_INVISIBLETIME] = silence
        where, listen = play.cluster.nameserver, play.listen
        return Consumer(
            "g", nameserver=where, subscription=FILTERED, settings=SETTINGS, listener=listen, mode="pop"
        )

    async def occupy(self, play: Play, client: Any) -> None:
        await until(lambda: play.hanging == 2)
        for code in (RequestCode.CHANGE_MESSAGE_INVISIBLETIME, RequestCode.KEEP_POP_OWNERS):
            await until(lambda code=code: play.cluster.asked(MASTER, code))  # type: ignore[misc]
        await until(lambda: len(play.cluster.asked(MASTER, RequestCode.POP_MESSAGE)) == 2)


class WaitsForMessages(Receives):
    """Nothing is there: a request waits at the broker."""

    def make(self, play: Play) -> Any:
        found = super().make(play)
        play.cluster.answers[MASTER, RequestCode.POP_MESSAGE] = refuse(ResponseCode.POLLING_TIMEOUT)
        play.cluster.answers[MASTER, RequestCode.NOTIFICATION] = silence
        return found

    async def occupy(self, play: Play, client: Any) -> None:
        play.call(client.receive(wait_s=3600.0))
        await until(lambda: play.cluster.asked(MASTER, RequestCode.NOTIFICATION))


class Pulls(Kind):
    """The master is gone and is tested again and again; the slave does not answer."""

    unregisters = False

    def make(self, play: Play) -> Any:
        play.cluster.answers[SLAVE, PULL] = silence
        return Puller("g", nameserver=play.cluster.nameserver, timeout_s=3600.0)

    async def occupy(self, play: Play, client: Any) -> None:
        await play.cluster.lose_master()
        play.call(client.pull(QUEUE, 0))
        await until(lambda: play.cluster.asked(SLAVE, PULL))
        assert client._replicas._looking is not None


class Administers(Kind):
    unregisters = False

    def make(self, play: Play) -> Any:
        play.cluster.answers[NAMESERVER, RequestCode.GET_BROKER_CLUSTER_INFO] = silence
        return Admin(nameserver=play.cluster.nameserver, timeout_s=3600.0)

    async def occupy(self, play: Play, client: Any) -> None:
        await client.route("T")
        play.call(client.cluster())
        await until(lambda: play.cluster.asked(NAMESERVER, RequestCode.GET_BROKER_CLUSTER_INFO))


class InABlock(Kind):
    """A client that has no start and stop of its own."""

    unregisters = False

    async def start(self, client: Any) -> None:
        await client.__aenter__()

    async def stop(self, client: Any) -> None:
        await client.__aexit__(None, None, None)


class ReadsDeadLetters(InABlock):
    def make(self, play: Play) -> Any:
        play.cluster.answers[NAMESERVER, RequestCode.GET_ROUTEINFO_BY_TOPIC] = silence
        return DeadLetters(nameserver=play.cluster.nameserver, timeout_s=3600.0)

    async def occupy(self, play: Play, client: Any) -> None:
        play.call(client.queues("g"))
        await until(lambda: play.cluster.asked(NAMESERVER, RequestCode.GET_ROUTEINFO_BY_TOPIC))


class AsksBrokers(InABlock):
    def make(self, play: Play) -> Any:
        play.cluster.answers[MASTER, RequestCode.DELETE_TOPIC_IN_BROKER] = silence
        return BrokerAdmin(timeout_s=3600.0)

    async def occupy(self, play: Play, client: Any) -> None:
        play.call(client.delete_topic(play.cluster.addresses[MASTER], "T"))
        await until(lambda: play.cluster.asked(MASTER, RequestCode.DELETE_TOPIC_IN_BROKER))


KINDS = (
    Produces(), Transacts(), Iterates(), Listens(), Broadcasts(), Orders(), Polls(), PollsAssigned(),
    Receives(), WaitsForMessages(), ListensToPops(), Pulls(), Administers(), ReadsDeadLetters(), AsksBrokers(),
)  # fmt: skip
