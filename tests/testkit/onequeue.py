"""A cluster of one queue with made-up messages, and a consumer of it: what most tests of consumers begin with."""

from __future__ import annotations

from gantry.client.consumer import Consumer, ConsumerSettings, StartFrom
from gantry.leaves import frames, records
from gantry.leaves.frames import Command
from gantry.wire import heartbeat
from gantry.wire.bodies import dumps
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply
from testkit.scripted import Answer, ScriptedCluster, offset, refuse

PULL, MEMBERS, COMMIT = (
    RequestCode.PULL_MESSAGE,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.UPDATE_CONSUMER_OFFSET,
)
MASTER, SLAVE = "broker-a", "broker-a/1"
FIRST = ConsumerSettings(start_from=StartFrom.FIRST, pull_wait_s=0.0)


class OneQueue(ScriptedCluster):
    """One queue that has `count` messages for a group of one, unless `others` are in it as well."""

    def __init__(self, count: int, others: tuple[str, ...] = ()) -> None:
        super().__init__(queues=1)
        self.count = count
        self.others = others
        broker = self.names[0]
        self.answers[broker, MEMBERS] = self._members
        self.answers[broker, PULL] = self._pull
        self.answers[broker, RequestCode.QUERY_CONSUMER_OFFSET] = refuse(ResponseCode.QUERY_NOT_FOUND)
        self.answers[broker, RequestCode.GET_MIN_OFFSET] = offset(0)
        self.answers[broker, RequestCode.GET_MAX_OFFSET] = offset(count)

    def pulls(self) -> list[int]:
        """Where the pulls began."""
        return [int(command.ext["queueOffset"]) for command in self.asked("broker-a", PULL)]

    def committed(self) -> list[int]:
        """By requests of their own."""
        return [int(command.ext["commitOffset"]) for command in self.asked("broker-a", COMMIT)]

    def told(self) -> list[int]:
        """By requests of their own and on the side of pulls."""
        both = [command for _, command in self.received if command.code in (COMMIT, PULL)]
        return [int(command.ext["commitOffset"]) for command in both if "commitOffset" in command.ext]

    def _members(self, command: Command) -> Command:
        beats = self.asked("broker-a", RequestCode.HEART_BEAT)
        ids = {heartbeat.read(beat.body).client_id for beat in beats}
        return reply(command, body=dumps({"consumerIdList": sorted(ids | set(self.others))}))

    def _pull(self, command: Command) -> Command:
        start = int(command.ext["queueOffset"])
        end = min(self.count, start + 10)
        ext = {"suggestWhichBrokerId": "0", "nextBeginOffset": str(end), "minOffset": "0", "maxOffset": str(self.count)}
        if start >= end:
            return reply(command, ResponseCode.PULL_NOT_FOUND, ext=ext)
        return reply(command, ext=ext, body=b"".join(record(number) for number in range(start, end)))


class Group(OneQueue):
    """A master and its slaves; all of them have the messages, and slaves that are not alone have nothing new."""

    def __init__(self, count: int, slaves: int = 1) -> None:
        super().__init__(count)
        self.slaves = slaves
        for number in range(slaves):
            for code in (MEMBERS, PULL, *(code for name, code in self.answers if name == MASTER)):
                self.answers[f"{MASTER}/{number + 1}", code] = self.answers[MASTER, code]

    def suggesting(self, broker_id: int) -> Answer:
        """The usual answer to a pull, with a suggestion."""

        def answer(command: Command) -> Command:
            found = self._pull(command)
            found.ext["suggestWhichBrokerId"] = str(broker_id)
            return found

        return answer

    def offsets_pulled(self, name: str) -> list[int]:
        """Where the pulls of one member began."""
        return [int(command.ext["queueOffset"]) for command in self.asked(name, PULL)]

    def heard(self, name: str) -> list[str]:
        """The offsets that one was told, also on the side of pulls."""
        return [c.ext["commitOffset"] for who, c in self.received if who == name and "commitOffset" in c.ext]

    async def lose_master(self, is_known: bool = False) -> None:
        """Its port is closed; the name server knows it or does not yet."""
        await self.servers[MASTER].close()
        if is_known:
            self.gone.add(MASTER)

    async def bring_master(self) -> None:
        """It is there again, and known."""
        await self.listen(MASTER)
        self.gone.clear()


def record(queue_offset: int, body: bytes | None = None) -> bytes:
    """The bytes of one stored message; its body is its offset unless it is given."""
    text = b"%d" % queue_offset if body is None else body
    send = frames.Send(topic="T", body=text, born_host=bytes(8), group="p")
    send.queue_offset = queue_offset
    size = records.size_of(send)
    out = bytearray(size)
    records.encode_run(out, 0, 1000 * queue_offset, [send], 1, bytes(8))
    return bytes(out)


def member(cluster: ScriptedCluster, settings: ConsumerSettings = FIRST, **more: object) -> Consumer:
    """A consumer of it, not started."""
    return Consumer("g", nameserver=cluster.nameserver, subscription={"T": "*"}, settings=settings, **more)  # type: ignore[arg-type]
