"""What clients and administrators say in a play, and what they are told.

    send TEXT ... [on TOPIC] [to N]     one message each, to the master, or to member N; the topic is `orders`
    offer TEXT                          one message to the master; what it answers, and when, is not told
    fill COUNT [on TOPIC]               so many of 10 kB, to the master: a segment holds 25
    fill up [on TOPIC]                  until it takes no more; how many fit depends on what else is written meanwhile
    read N [TOPIC]                      what a consumer gets from member N, from the beginning on
    half [TEXT ...]                     messages whose transactions are open; the master knows the client then
    end TEXT commit | rollback          it ends
    topic create | delete NAME          asked of the master
    commit OFFSET [TOPIC] [to N]        a group of readers stands there, the master is told, or member N
    ends N [TOPIC]                      where member N says that the queue begins and ends, and the group stands

The client of transactions is asked by the broker like any other; each question is told when it comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gantry.leaves.frames import Command
from gantry.wire import bodies
from gantry.wire.codes import RequestCode, ResponseCode
from simulation.clients import Client, Consumer
from simulation.ledger import Ledger
from testkit.brokerplay import send

if TYPE_CHECKING:
    from gantry.transport.connection import Connection
    from simulation.groupmember import GroupMember
    from simulation.groupworld import GroupWorld
    from simulation.network import Network
    from simulation.world import World

CLIENT = "10.0.1.1"
READER = "10.0.2.1"
_TOPIC = "orders"
_READERS = "readers"
_PAYERS = "payers"
_ENDS = {"commit": "8", "rollback": "12"}
_READS_MAX = 40
_FILLS_MAX = 50
_FILLED = b"x" * 10_000
Do = Callable[[list[str]], None]


class Sender(Client):
    """Asks one broker, whichever it is told."""

    def __init__(self, world: World, network: Network) -> None:
        super().__init__(world, network, CLIENT, "")
        self.on_question: Callable[[str], None] = lambda key: None

    async def ask_at(self, address: str, command: Command) -> Command | None:
        """The answer, or None."""
        self._route = _At(address)
        return await self.ask(command, 5.0)

    def on_requests(self, connection: Connection, commands: list[Command]) -> None:
        """A broker asks what became of a transaction."""
        for command in commands:
            if command.code == RequestCode.CHECK_TRANSACTION_STATE:
                self.on_question(command.ext.get("transactionId", ""))


class _At:
    def __init__(self, address: str) -> None:
        self._address = address

    async def address(self, remoting: object) -> str:
        del remoting
        return self._address

    def missed(self) -> None:
        """There is no other."""


class PlayTalk:
    """One play's."""

    def __init__(
        self,
        world: World,
        group: GroupWorld,
        say: Callable[[str], None],
        until: Callable[[Callable[[], bool]], bool],
    ) -> None:
        self.commands: dict[str, Do] = {
            name.removeprefix("_do_"): getattr(self, name) for name in dir(self) if name.startswith("_do_")
        }
        self._world = world
        self._group = group
        self._say = say
        self._until = until
        self._sender = Sender(world, group.network)
        self._sender.on_question = self._asked
        self._halves: dict[str, dict[str, str]] = {}  # where they stand, by what they say
        self._questions: set[str] = set()

    def _do_send(self, words: list[str]) -> None:
        member, words = self._choice(words)
        topic, words = _named(words, "on")
        for word in words:
            self._sent(word, send(topic, word.encode(), 0), member)

    def _do_offer(self, words: list[str]) -> None:
        leader = self._group.leader()
        assert leader is not None, "nobody leads"
        address, (text,) = leader.address, words

        async def main() -> None:
            await self._sender.ask_at(address, send(_TOPIC, text.encode(), 0))

        self._sender.run(main)

    def _do_fill(self, words: list[str]) -> None:
        topic, words = _named(words, "on")
        leader = self._group.leader()
        assert leader is not None, "nobody leads"
        if words == ["up"]:
            self._fill_up(leader, topic)
            return
        answers = [self._ask(leader, send(topic, _FILLED, 0)) for _ in range(int(words[0]))]
        self._say(f"{sum(map(_is_done, answers))} messages of {len(_FILLED)} bytes on {topic}")

    def _fill_up(self, leader: GroupMember, topic: str) -> None:
        for _ in range(_FILLS_MAX):
            answer = self._ask(leader, send(topic, _FILLED, 0))
            if not _is_done(answer):
                self._say(f"no more messages on {topic}: {_answer(leader, answer, '')}")
                return
        self._say(f"{topic} takes {_FILLS_MAX} messages, and more")

    def _do_read(self, words: list[str]) -> None:
        self._world.run(self._world.now + 1.5)  # a slave hears of what is confirmed with the next beat
        member = self._group.members[int(words[0])]
        topic = words[1] if len(words) > 1 else _TOPIC
        place = topic, 0
        reader = Consumer(self._world, self._group.network, READER, member.address, Ledger(is_sync=False), place)
        found: list[str] = []
        ended: list[bool] = []

        async def main() -> None:
            for _ in range(_READS_MAX):
                more = await reader.read(0)
                if more is None:
                    ended.append(True)
                    return
                found.extend("x" if one.body == _FILLED else one.body.decode() for one in more)

        reader.run(main)
        self._until(lambda: bool(ended))
        told = f"{len(found)} messages" if found and set(found) == {"x"} else " ".join(found) or "nothing"
        self._say(f"member {member.ordinal} gives {told}{'' if ended else ', and no end'}")

    def _do_half(self, words: list[str]) -> None:
        leader = self._group.leader()
        assert leader is not None, "nobody leads"
        self._beat(leader, [{"groupName": _PAYERS}], [])
        for word in words:
            pairs = {"UNIQ_KEY": word, "TRAN_MSG": "true", "PGROUP": _PAYERS}
            half = send(_TOPIC, word.encode(), 0, pairs, a=_PAYERS, f="4")
            answer = self._sent(f"half {word}", half, leader)
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                self._halves[word] = {
                    "tranStateTableOffset": answer.ext["queueOffset"],
                    "commitLogOffset": str(int(answer.ext["msgId"][-16:], 16)),
                }

    def _do_end(self, words: list[str]) -> None:
        text, how = words
        leader = self._group.leader()
        assert leader is not None, "nobody leads"
        fields = self._halves[text] | {"producerGroup": _PAYERS, "transactionId": text, "msgId": text}
        fields |= {"commitOrRollback": _ENDS[how], "fromTransactionCheck": "false"}
        answer = self._ask(leader, Command(RequestCode.END_TRANSACTION, ext=fields))
        self._say(f"{how} {text}: {_answer(leader, answer, 'done')}")

    def _do_topic(self, words: list[str]) -> None:
        how, name = words
        leader = self._group.leader()
        assert leader is not None, "nobody leads"
        if how == "delete":
            command = Command(RequestCode.DELETE_TOPIC_IN_BROKER, ext={"topic": name})
        else:
            fields = {"topic": name, "readQueueNums": "1", "writeQueueNums": "1", "perm": "6", "topicSysFlag": "0"}
            fields |= {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "order": "false"}
            command = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=fields)
        self._say(f"topic {name}, {how}: {_answer(leader, self._ask(leader, command), 'done')}")

    def _do_commit(self, words: list[str]) -> None:
        member, words = self._choice(words)
        offset, topic = words[0], words[1] if len(words) > 1 else _TOPIC
        assert member is not None, "nobody leads"
        reader = {"groupName": _READERS, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING"}
        reader |= {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False}
        subscription = {"topic": topic, "subString": "*", "expressionType": "TAG", "subVersion": 1}
        self._beat(member, [], [reader | {"subscriptionDataSet": [subscription]}])
        fields = {"consumerGroup": _READERS, "topic": topic, "queueId": "0", "commitOffset": offset}
        answer = self._ask(member, Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=fields))
        self._say(f"{_READERS} stand at {offset} of {topic}: {_answer(member, answer, 'done')}")

    def _do_ends(self, words: list[str]) -> None:
        member = self._group.members[int(words[0])]
        topic = words[1] if len(words) > 1 else _TOPIC
        queue = {"topic": topic, "queueId": "0"}
        first, end = (
            self._offset(member, Command(code, ext=dict(queue)))
            for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
        )
        group = Command(RequestCode.QUERY_CONSUMER_OFFSET, ext=queue | {"consumerGroup": _READERS})
        stand = self._offset(member, group)
        self._say(f"member {member.ordinal}: {topic} from {first} to {end}, {_READERS} at {stand}")

    # -- within

    def _beat(self, member: GroupMember, producers: list[object], consumers: list[object]) -> None:
        beat = {"clientID": CLIENT, "producerDataSet": producers, "consumerDataSet": consumers}
        self._ask(member, Command(RequestCode.HEART_BEAT, body=bodies.dumps(beat)))

    def _choice(self, words: list[str]) -> tuple[GroupMember | None, list[str]]:
        if "to" not in words:
            return self._group.leader(), words
        at = words.index("to")
        return self._group.members[int(words[at + 1])], words[:at]

    def _ask(self, member: GroupMember, command: Command) -> Command | None:
        told: list[Command | None] = []

        async def main() -> None:
            told.append(await self._sender.ask_at(member.address, command))

        self._sender.run(main)
        self._until(lambda: bool(told))
        return told[0] if told else None

    def _sent(self, text: str, command: Command, member: GroupMember | None) -> Command | None:
        if member is None:
            self._say(f"{text}: nobody leads")
            return None
        answer = self._ask(member, command)
        self._say(f"{text}: {_answer(member, answer, 'SEND_OK')}")
        return answer

    def _offset(self, member: GroupMember, command: Command) -> str:
        answer = self._ask(member, command)
        return answer.ext["offset"] if answer is not None and answer.code == ResponseCode.SUCCESS else "nothing"

    def _asked(self, key: str) -> None:
        if key not in self._questions:
            self._questions.add(key)
            self._say(f"a member asks what became of {key}")


def _is_done(answer: Command | None) -> bool:
    return answer is not None and answer.code == ResponseCode.SUCCESS


def _named(words: list[str], before: str) -> tuple[str, list[str]]:
    if before not in words:
        return _TOPIC, words
    at = words.index(before)
    return words[at + 1], words[:at]


def _answer(member: GroupMember, answer: Command | None, success: str) -> str:
    if answer is None:
        return f"no answer of member {member.ordinal}"
    name = success if answer.code == ResponseCode.SUCCESS else ResponseCode(answer.code).name
    remark = (answer.remark or "").partition(";")[0]
    return f"{name} of member {member.ordinal}{f' ({remark})' if remark and answer.code else ''}"
