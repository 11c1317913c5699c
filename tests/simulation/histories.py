"""Clients whose histories are compared with a model: of topics, of queue locks and of committed offsets.

    topics     created with a number of queues that was not used before, deleted, looked up; a topic is a register,
               and its history has to be linearizable.  A master that was replaced and does not know it yet answers
               readers until its serving lease ends, so what a reader saw counts from STALE_S before it asked.  The
               member that leads has to say what was answered last (`knowntopics`), in look-ups, lists and pulls; each
               client asks it for all topics before it goes on to change them
    locks      a client that has a queue works on it for half a lease after its last request that was granted, or
               until it gives the queue back; no two work on one queue at a time
    offsets    each commit is above the last one, and a group that asks the member that leads, as it does before its
               first commit there, is told its newest one, or a later one than it knows of, but what may be gone by the
               documents (`leads`)

See `historyplan` for the run.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from gantry.leaves.frames import Command
from gantry.wire import bodies
from gantry.wire.codes import RequestCode, ResponseCode
from simulation.clients import Client, Consumer
from simulation.groupworld import LOCK_S
from simulation.knowntopics import Known, KnownTopics
from simulation.leads import Commit, Leads
from simulation.ledger import Place
from simulation.linear import NEVER, Operation, Value, shortest_wrong
from testkit.brokerplay import pull

WORK_SHARE = 0.5  # clients stop at half of the lease, as RocketMQ's do
STALE_S = 5.0
_GROUP = "workers"
_REACHED_S = 3.0
_THERE = (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED)
_QUEUES = tuple((read, write) for read in range(1, 9) for write in range(1, 9))


class Answered(Enum):
    """What a client was told is done."""

    TOPIC = "a change of a topic"
    LOCK = "a new lock of a queue"
    FIRST = "the first offset of a group"
    COMMIT = "an offset after the first one"


@dataclass(slots=True)
class Work:
    """Somebody worked on a queue, as far as its client knows."""

    client: str
    queue: Place
    begun_s: float
    ended_s: float


@dataclass(slots=True)
class Histories:
    """What clients did and were told."""

    topics: dict[str, list[Operation]] = field(default_factory=dict)
    works: list[Work] = field(default_factory=list)
    commits: dict[str, list[Commit]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    known: KnownTopics = field(default_factory=KnownTopics)
    judged: Counter[str] = field(default_factory=Counter)  # answers that could be wrong, by what they were about
    on_answered: list[Callable[[Answered, str], None]] = field(default_factory=list)  # told what is done, and by whom
    _numbers: dict[str, int] = field(default_factory=dict)

    def next_queues(self, topic: str) -> tuple[int, int]:
        """How many queues to read and to write, as no topic of this name had them before; repeats after 64."""
        number = self._numbers.get(topic, 0)
        self._numbers[topic] = number + 1
        return _QUEUES[number % len(_QUEUES)]

    def worked(self, client: str, queue: Place, begun_s: float, ended_s: float) -> Work:
        """From one moment to another; told when it begins, and shortened when the queue is given back."""
        for other in self.works:
            if other.queue == queue and other.client != client and other.begun_s < ended_s and begun_s < other.ended_s:
                until = f"until {other.ended_s:.3f}"
                self.broken.append(f"{client} has {queue} from {begun_s:.3f} on, and {other.client} works {until}")
        work = Work(client, queue, begun_s, ended_s)
        self.works.append(work)
        return work

    def answered(self, what: Answered, address: str) -> None:
        """A client has this answer from this member."""
        for told in self.on_answered:
            told(what, address)

    def wrong(self) -> str:
        """What no model explains; empty when there is nothing."""
        if self.broken:
            return self.broken[0]
        for topic, history in self.topics.items():
            if wrong := shortest_wrong(history):
                told = "; ".join(str(one) for one in wrong[-6:])
                return f"the history of topic {topic} is not linearizable, at the end of: {told}"
        return ""

    def __str__(self) -> str:
        operations = sum(len(history) for history in self.topics.values())
        commits = sum(len(each) for each in self.commits.values())
        judged = ", ".join(f"{count} {what}" for what, count in sorted(self.judged.items()))
        counts = f"{operations} operations on topics, {len(self.works)} times a lock, {commits} commits"
        return f"{counts}; judged: {judged}"


class Administrator(Client):
    """Creates, deletes and looks up topics, one after the other; several share their topics.

    Changes nothing after a change of master, or a miss, until it was told of every topic: a change without an answer
    leaves nothing to be known.
    """

    histories: Histories
    topics: tuple[str, ...] = ()
    leads: Leads
    believes: Callable[[str], bool]  # that it leads
    _looked = -1  # under which lead it was told of every topic

    async def main(self) -> None:
        """Until stopped."""
        while not self.is_stopped:
            if self._looked != self.leads.count:
                await self._look_everywhere()
            else:
                what = self.chance.choice((self._create, self._delete, self._look, self._look, self._read))
                await what(self.chance.choice(self.topics))
            await asyncio.sleep(self.chance.expovariate(1 / 0.6))

    async def _look_everywhere(self) -> None:
        self._looked = self.leads.count
        await self._list()
        for topic in self.topics:
            await self._look(topic)
            await self._read(topic)

    async def _create(self, topic: str) -> None:
        read, write = self.histories.next_queues(topic)
        fields = {"topic": topic, "readQueueNums": str(read), "writeQueueNums": str(write), "perm": "6"}
        fields |= {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
        await self._change(topic, Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=fields), f"{read}/{write}")

    async def _delete(self, topic: str) -> None:
        await self._change(topic, Command(RequestCode.DELETE_TOPIC_IN_BROKER, ext={"topic": topic}), None)

    async def _change(self, topic: str, command: Command, value: str | None) -> None:
        begun_s, lead = self._world.now, self.leads.count
        change = self.histories.known.begin(topic, value)
        answer = await self.ask(command, _REACHED_S + 2.0)
        is_done = answer is not None and answer.code == ResponseCode.SUCCESS
        if is_done:
            self.histories.known.answered(change)
        else:
            self.histories.known.unanswered(change, is_over=self.leads.count > lead)
            self._missed()
        self._note(topic, begun_s, self._world.now if is_done else NEVER, is_write=True, value=value)
        if is_done:
            self.histories.answered(Answered.TOPIC, self.asked)

    async def _look(self, topic: str) -> None:
        begun_s = self._world.now
        answer, known = await self._ask(Command(RequestCode.GET_TOPIC_CONFIG, ext={"topic": topic}))
        if answer is None or answer.code not in (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST):
            self._missed()
            return
        value = _queues(bodies.loads_object(answer.body)) if answer.code == ResponseCode.SUCCESS else None
        if topic in known:
            self._judge("looks", topic, known[topic].value, value)
        if self.believes(self.asked) and not self.histories.known.may_become(topic, value):
            self._note(topic, begun_s - STALE_S, self._world.now, is_write=False, value=value)

    async def _list(self) -> None:
        answer, known = await self._ask(Command(RequestCode.GET_ALL_TOPIC_CONFIG))
        if answer is None or answer.code != ResponseCode.SUCCESS:
            self._missed()
            return
        table = bodies.loads_object(answer.body)["topicConfigTable"]
        assert isinstance(table, dict)
        for topic, one in known.items():
            self._judge("lists", topic, one.value, _queues(table[topic]) if topic in table else None)

    async def _read(self, topic: str) -> None:
        answer, known = await self._ask(pull(topic))
        if answer is None or answer.code not in (*_THERE, ResponseCode.TOPIC_NOT_EXIST):
            self._missed()
        elif topic in known:
            is_there = answer.code in _THERE
            self._judge("reads", topic, known[topic].value is not None, is_there)

    async def _ask(self, command: Command) -> tuple[Command | None, dict[str, Known]]:
        """The answer, and what the member that gave it has to say."""
        known, lead = dict(self.histories.known.values), self.leads.count
        answer = await self.ask(command, _REACHED_S)
        if self.leads.count > lead or not self.leads.is_last(self.asked):
            return answer, {}
        values = self.histories.known.values
        return answer, {topic: one for topic, one in known.items() if values.get(topic) is one}

    def _judge(self, how: str, topic: str, wanted: Value | bool, told: Value | bool) -> None:
        self.histories.judged[how] += 1
        if told != wanted:
            what = f"{topic} is {told}, and {wanted} was answered last"
            self.histories.broken.append(f"{self._world.now:.3f}: {self.asked} {how} that {what}")

    def _missed(self) -> None:
        self._looked = -1
        self._route.missed()

    def _note(self, topic: str, begun_s: float, ended_s: float, is_write: bool, value: str | None) -> None:
        one = Operation(self.host, begun_s, ended_s, is_write, value)
        self.histories.topics.setdefault(topic, []).append(one)


def _queues(config: dict[str, object]) -> str:
    return f"{config['readQueueNums']}/{config['writeQueueNums']}"


class Locker(Client):
    """Asks for each queue now and then, keeps it for a while, and gives it back or does not."""

    histories: Histories
    queues: tuple[Place, ...] = ()
    work_s = LOCK_S * WORK_SHARE

    async def main(self) -> None:
        """Until stopped."""
        held: dict[Place, Work] = {}
        while not self.is_stopped:
            queue = self.chance.choice(self.queues)
            if queue in held and self.chance.random() < 0.3:
                work = held.pop(queue)
                work.ended_s = min(work.ended_s, self._world.now)
                await self.ask(self._command(RequestCode.UNLOCK_BATCH_MQ, queue), 1.0)
            else:
                await self._lock(queue, held)
            await asyncio.sleep(self.chance.expovariate(1 / 0.25))

    async def _lock(self, queue: Place, held: dict[Place, Work]) -> None:
        begun_s = self._world.now
        answer = await self.ask(self._command(RequestCode.LOCK_BATCH_MQ, queue), 1.0)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            self._route.missed()
            return
        if not bodies.loads_object(answer.body)["lockOKMQSet"]:
            return
        if (until_s := begun_s + self.work_s) > self._world.now:
            if queue in held:
                held[queue].ended_s = min(held[queue].ended_s, self._world.now)
            is_new = queue not in held
            held[queue] = self.histories.worked(self.host, queue, self._world.now, until_s)
            if is_new:
                self.histories.answered(Answered.LOCK, self.asked)

    def _command(self, code: RequestCode, queue: Place) -> Command:
        named = {"brokerName": "", "topic": queue[0], "queueId": queue[1]}
        asked = {"clientId": self.host, "consumerGroup": _GROUP, "mqSet": [named], "onlyThisBroker": False}
        return Command(code, body=bodies.dumps(asked))


class Committer(Consumer):
    """A consumer that commits how far it is, and asks now and then how far its group is: first after each change of
    master.  After `commits_max` commits it goes on as another group.
    """

    histories: Histories
    leads: Leads
    commits_max = sys.maxsize
    _looked = 0  # under which lead it was told where its group is
    _has_asked = False  # for a commit of its group
    _groups = 1

    @property
    def name(self) -> str:
        """Its group's."""
        name = f"committers-{self.host.rpartition('.')[2]}"
        return name if self._groups == 1 else f"{name}-{self._groups}"

    async def main(self) -> None:
        """Until stopped."""
        self._tasks.append(self.loop.begin(self._beat()))
        while not self.is_stopped:
            await self.read(300)
            commits = self.histories.commits.setdefault(self.name, [])
            fields = {"consumerGroup": self.name, "topic": self._place[0], "queueId": str(self._place[1])}
            is_new = not commits or self.next > commits[-1].offset
            if len(commits) >= self.commits_max and self._looked == self.leads.count:
                self._groups, self._has_asked = self._groups + 1, False
            elif self._looked != self.leads.count or (not is_new and self.chance.random() < 0.5):
                await self._look(fields, commits)
            elif is_new:
                await self._commit(fields, commits)
            await asyncio.sleep(self.chance.uniform(0.05, 0.4))

    async def _beat(self) -> None:
        """Be known to every member, as the group's consumer."""
        group = {"consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING"}
        group |= {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False}
        subscription = {"topic": self._place[0], "subString": "*", "expressionType": "TAG", "subVersion": 1}
        while True:
            consumers = [{"groupName": self.name, **group, "subscriptionDataSet": [subscription]}]
            beat = {"clientID": self.host, "producerDataSet": [], "consumerDataSet": consumers}
            for address in self.beats_to:
                await self.tell(address, Command(RequestCode.HEART_BEAT, body=bodies.dumps(beat)))
            await asyncio.sleep(1.0)

    async def _commit(self, fields: dict[str, str], commits: list[Commit]) -> None:
        offset, asked_s, is_first = self.next, self._world.now, not self._has_asked
        command = Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=fields | {"commitOffset": str(offset)})
        self._has_asked = True
        answer = await self.ask(command, 1.0)
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            commits.append(Commit(offset, asked_s, self._world.now, self.asked, is_first))
            self.histories.answered(Answered.FIRST if is_first else Answered.COMMIT, self.asked)
        else:
            self._route.missed()

    async def _look(self, fields: dict[str, str], commits: list[Commit]) -> None:
        lead = self.leads.count
        answer = await self.ask(Command(RequestCode.QUERY_CONSUMER_OFFSET, ext=fields), 1.0)
        if answer is None or answer.code not in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND):
            self._route.missed()
            return
        told = int(answer.ext["offset"]) if answer.code == ResponseCode.SUCCESS else -1
        least = -1
        if self.leads.count == lead and self.leads.is_last(self.asked):
            is_changed = self._looked != lead
            self._looked = lead
            least = next((commit.offset for commit in reversed(commits) if self.leads.keeps(commit)), -1)
            self.histories.judged["offsets of a next master"] += is_changed and least >= 0
        else:
            self._route.missed()
        if told < least or told > self.next:
            self.histories.broken.append(
                f"{self._world.now:.3f}: {fields['consumerGroup']} committed {least} and is at {self.next}; "
                f"{self.asked} says {told}"
            )
