"""Whatever a client sends, nothing ends the broker, and what was answered SEND_OK is there.

A real broker gets sends of every kind over a socket: each request code, each combination of flags, names, counts and
delays, properties of a length near each limit, ids of any length.  Then it lives on: halves are put back, the broker is
started again, hours pass, what is due is delivered, producers are asked and say commit, what was delivered is sent back
and given up, and there is another start.  After each step every message that was acknowledged is read from a queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gantry.append.admit import HALF_BYTES_MAX, KEY_BYTES_MAX
from gantry.broker.broker import Broker
from gantry.broker.machine import Machine
from gantry.broker.parts import Parts
from gantry.clock import SystemClock
from gantry.leaves import properties, records
from gantry.leaves.frames import Command
from gantry.leaves.records import Record
from gantry.model import names
from gantry.wire.bodies import dumps
from gantry.wire.codes import RequestCode
from testkit.brokerplay import Peer, configuration, peer
from testkit.turning import until

GROUP, PRODUCERS = "g", "producers"
LATER_MS = 3 * 3_600_000
HIDDEN = {
    names.HALF_TOPIC,
    names.OP_HALF_TOPIC,
    names.SCHEDULE_TOPIC,
    names.TIMER_TOPIC,
    names.CHECK_MAX_TIME_TOPIC,
}
_PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # an example takes seconds: a failure is shown as it was found
LONG = (
    *("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp"),
    *("flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch"),
)
LETTERS = "abcdefghijklm"
TOPICS = (
    *("orders", "orders", "t" * 127, "t" * 128, "%RETRY%g", "%RETRY%g", "%DLQ%g", "%RETRY%nobody"),
    *("%DLQ%" + "d" * 250, "TBW102", names.HALF_TOPIC, names.SCHEDULE_TOPIC),
)


class Clock(SystemClock):
    """The machine's, moved forwards by hand."""

    moved_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.moved_ms

    def monotonic(self) -> float:
        return super().monotonic() + self.moved_ms / 1000


def of_any_length(*lengths: int) -> st.SearchStrategy[str]:
    return st.sampled_from(lengths).map(lambda length: "i" * length)


numbers = st.sampled_from(["3", "3", "18", "1", "99", "0", "-1", "007", "soon", str(1 << 62)])
VALUES: dict[str, st.SearchStrategy[str]] = {
    "UNIQ_KEY": of_any_length(1, 32, 254, 255, 255, 256, 16_000),
    "PGROUP": of_any_length(1, 9, 255, 255, 256, 9_000),
    "DELAY": numbers,
    "TIMER_DELAY_MS": numbers,
    "TIMER_DELIVER_MS": numbers,
    "__STARTDELIVERTIME": numbers,
    "TIMER_DEL_UNIQKEY": st.sampled_from(["c", "c" * 300]),
    "WAIT": st.sampled_from(["true", "false"]),
    "RETRY_TOPIC": st.sampled_from(["orders", "t" * 127, "nowhere"]),
    "ORIGIN_MESSAGE_ID": of_any_length(32, 500),
    "REAL_TOPIC": st.sampled_from(["orders", names.HALF_TOPIC, "x" * 300]),
    "REAL_QID": numbers,
    "TRAN_PREPARED_QUEUE_OFFSET": numbers,
    "TRANSACTION_CHECK_TIMES": numbers,
    "GANTRY_TX_SINCE_MS": numbers,
    "GANTRY_TX_REARMED": st.just("1"),
    "__transactionId__": of_any_length(5, 2_000),
    "CHECK_IMMUNITY_TIME_IN_SECONDS": numbers,
    "SPARK_TXN": st.sampled_from(["no", "sink/1/part/home"]),
    "POP_CK": st.just("0 1 2"),
    "MSG_REGION": of_any_length(5, 900),
    "INNER_NUM": st.just("3"),
    "REPLY_TO_CLIENT": st.just("nobody"),
    "CORRELATION_ID": of_any_length(1, 9_000),
}
transactional = st.sampled_from([{}, {"TRAN_MSG": "true"}, {"TRAN_MSG": "TRUE"}, {"TRAN_MSG": "false"}])
some = st.lists(
    st.sampled_from(sorted(VALUES)).flatmap(lambda name: st.tuples(st.just(name), VALUES[name])), max_size=3
).map(dict)
pairs = st.builds(lambda one, other: one | other, transactional, some)


@dataclass(frozen=True)
class Wanted:
    """One request; `length` says up to where the properties are filled: a limit by number, and how far beside it."""

    code: int
    topic: str
    flags: int
    pairs: dict[str, str]
    length: tuple[int, int] | None
    times: int
    times_max: str
    queue_id: int
    group: str
    ends_open: bool

    def command(self, number: int, limits: tuple[int, ...]) -> Command:
        text = properties.pack(self.pairs).decode()
        if self.length is not None:
            room = limits[self.length[0]] + self.length[1] - len(text) - len("p\x01\x02")
            text += f"p\x01{'x' * room}\x02" if room > 0 else ""
        text = text[:-1] if self.ends_open else text
        is_batch = self.code == 320 and self.times == 0
        body = b"#%d#" % number
        if is_batch:
            body = entry(body, text.encode()) * 2
            text = ""
        values = [self.group, self.topic, "TBW102", "4", str(self.queue_id), str(self.flags), "1700000000000", "0"]
        values += [text, str(self.times), "false", self.times_max, "true" if is_batch else "false"]
        fields = LONG if self.code in (10, 324) else LETTERS
        return Command(self.code, ext=dict(zip(fields, values, strict=True)), body=body)


requests = st.builds(
    Wanted,
    code=st.sampled_from([10, 310, 310, 310, 320, 324, 325]),
    topic=st.sampled_from(TOPICS),
    flags=st.sampled_from([0, 4, 5, 0x34]) | st.integers(0, 0x7F),
    pairs=pairs,
    length=st.none() | st.tuples(st.sampled_from([0, 0, 1, 1, 2, 3, 4]), st.integers(-2, 2)),
    times=st.sampled_from([0, 0, 1, 16, 17, (1 << 31) - 1]),
    times_max=st.sampled_from(["", "-1", "0", "3"]),
    queue_id=st.sampled_from([0, 0, 0, 1, -1, 3, 99]),
    group=st.sampled_from([PRODUCERS] * 4 + ["", "g" * 255, "g" * 256, "a\x01b", "付" * 100]),
    ends_open=st.booleans(),
)


class Life:
    """A broker's folder, from start to start."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.acknowledged: dict[int, Wanted] = {}
        self._folder = folder

    @asynccontextmanager
    async def running(self) -> AsyncIterator[tuple[Parts, Peer]]:
        """A start; what the clock brings is called for by name, except for deliveries."""
        config = configuration(self._folder, transactions__check_interval_s=3_600)
        broker = Broker(config, machine=Machine(clock=self.clock))
        await broker.start()
        try:
            async with peer(broker) as client:
                assert broker.parts is not None
                yield broker.parts, client
                await client.ping()
            assert broker.failure is None, broker.failure
        finally:
            await broker.stop()

    async def send(self, parts: Parts, client: Peer, wanted: list[Wanted]) -> None:
        room = parts.sending._admission.limits.properties_bytes_max
        limits = (room, room + HALF_BYTES_MAX - KEY_BYTES_MAX, room + 2048, 32_767, 255)
        commands = [one.command(number, limits) for number, one in enumerate(wanted)]
        for number, code in enumerate(await codes(client, commands)):
            if code == 0:
                self.acknowledged[number] = wanted[number]

    def look(self, parts: Parts, visible: bool = False) -> list[Record]:
        """All that was acknowledged is in a queue.

        visible: in one that consumers read, but for what takes something back and what waits for a sink's decision.
        """
        found = list(shown(parts, HIDDEN if visible else set()))
        seen = {int(one.body.split(b"#")[1]) for one in found if one.body.startswith(b"#")}
        for number, wanted in self.acknowledged.items():
            is_excused = visible and not wanted.pairs.keys().isdisjoint({"TIMER_DEL_UNIQKEY", "SPARK_TXN"})
            assert number in seen or is_excused, f"acknowledged and not there: {wanted}"
        return found


async def codes(client: Peer, commands: list[Command]) -> list[int]:
    """What they are answered, in their order."""
    await client.send(*commands)
    answers = {answer.opaque: answer.code for answer in await client.receive(len(commands))}
    return [answers[command.opaque] for command in commands]


def shown(parts: Parts, without: set[str]) -> Iterator[Record]:
    store = parts.store
    for topic, queue_id in sorted(store.queues()):
        low, high = store.queue_range(topic, queue_id) or (0, 0)
        for offset in range(low, high) if topic not in without else ():
            entry = store.reader.entry(topic, queue_id, offset)
            record = None if entry is None else store.reader.record(entry)
            assert record is not None and not record.sys_flag & 4, f"{topic}/{queue_id} at {offset}"
            assert not record.sys_flag & 8 or record.prepared_offset, "the broker alone says what was committed"
            yield record


async def put_all_back(parts: Parts) -> None:
    service = parts.transactions
    for half in list(service.book.open.values()):
        service.moves.put_back(half)
    assert not service.moves.unmovable
    await until(lambda: not service.settling._pending)


async def asked_given_up_and_committed(parts: Parts, client: Peer) -> None:
    """Each half in turn: its producer is asked; every other one is given up; then the producer says commit."""
    service = parts.transactions
    halves = [half for half in service.book.open.values() if half.batch is None]
    groups = [{"groupName": one} for one in sorted({half.group for half in halves}) if names.group_fault(one) is None]
    beat = dumps({"clientID": "me", "producerDataSet": groups, "consumerDataSet": []})
    assert (await client.call(Command(RequestCode.HEART_BEAT, body=beat))).code == 0
    before = service.counts.asked
    for _ in service.run_pass():
        pass
    for question in await client.receive(service.counts.asked - before):
        shown_to_it = records.view(question.body, 0, len(question.body))
        assert question.code == RequestCode.CHECK_TRANSACTION_STATE and shown_to_it.topic not in HIDDEN
    for half in halves[::2]:
        service._give_up(half)
    assert not service.moves.unmovable
    ends = [
        Command(
            RequestCode.END_TRANSACTION,
            ext={
                "producerGroup": half.group,
                "tranStateTableOffset": str(half.current),
                "commitLogOffset": str(half.log_offset),
                "commitOrRollback": "8",
                "msgId": "",
            },
        )
        for half in halves
    ]
    assert set(await codes(client, ends)) <= {0}


async def sent_back(parts: Parts, client: Peer, found: list[Record]) -> None:
    """Consumers give each of them up, want it again, and, as Java's do when that fails, send it themselves."""
    for record in found:
        back = {"offset": str(record.log_offset), "group": GROUP, "originTopic": ""}
        text = properties.parse(record.properties)
        text.pop("TIMER_DEL_UNIQKEY", None)  # with a delay it is refused, no matter who sends it
        text |= {"RETRY_TOPIC": record.topic, "RECONSUME_TIME": "1", "MAX_RECONSUME_TIMES": "16", "DELAY": "3"}
        text |= {"ORIGIN_MESSAGE_ID": text.get("ORIGIN_MESSAGE_ID", "i" * 32), "CONSUME_START_TIME": "1700000000000"}
        values = ["CLIENT", f"%RETRY%{GROUP}", "TBW102", "4", "0", "4", "1700000000000", "0"]
        values.append(properties.pack(text).decode())
        commands = [
            Command(RequestCode.CONSUMER_SEND_MSG_BACK, ext=back | {"delayLevel": level}) for level in ("-1", "0")
        ]
        for times in ("1", "17"):
            ext = dict(zip(LETTERS, [*values, times, "false", "16", "false"], strict=True))
            commands.append(Command(310, ext=ext, body=record.body))
        assert await codes(client, commands) == [0] * 4, f"{record}: {record.properties[:200]!r}"


def entry(body: bytes, packed: bytes) -> bytes:
    """A message of a batch."""
    size = 22 + len(body) + len(packed)
    head = size.to_bytes(4, "big") + bytes(12) + len(body).to_bytes(4, "big")
    return head + body + len(packed).to_bytes(2, "big") + packed


def owed(parts: Parts) -> int:
    """How many are due and hidden."""
    book = parts.delays.book
    return sum(line.end - line.next for line in book.lines.values()) + parts.delays.pending + book.under_way


async def live(folder: Path, wanted: list[Wanted]) -> tuple[int, int]:
    life = Life(folder)
    async with life.running() as (parts, client):
        parts.groups.ensure(GROUP)
        await life.send(parts, client, wanted)
        life.look(parts)
        await put_all_back(parts)
        life.look(parts)
    life.clock.moved_ms += LATER_MS
    async with life.running() as (parts, client):
        life.look(parts)
        await asked_given_up_and_committed(parts, client)
        life.look(parts)
    life.clock.moved_ms += LATER_MS
    async with life.running() as (parts, client):
        await until(lambda: not owed(parts))
        found = life.look(parts, visible=True)
        await sent_back(parts, client, found)
    life.clock.moved_ms += LATER_MS
    async with life.running() as (parts, _):
        await until(lambda: not owed(parts))
        life.look(parts, visible=True)
        again = sum(1 for record in shown(parts, HIDDEN) if record.topic in (f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"))
        assert again >= 4 * len(found), "each came again twice and was given up twice"
    return len(life.acknowledged), len(found)


def play_through(wanted: list[Wanted]) -> None:
    with TemporaryDirectory() as folder:
        asyncio.run(live(Path(folder), wanted))


def largest(pairs: dict[str, str], code: int = 310) -> Wanted:
    """Return what fills the properties of something that is no half to the last byte."""
    return Wanted(code, "orders", 0, pairs, (1, 0), 0, "-1", 0, PRODUCERS, False)


def test_the_largest_properties_are_taken_delayed_sent_back_and_given_up(tmp_path: Path) -> None:
    """Apache's tests send 30 776 bytes of properties, and whatever is accepted can be redelivered."""
    ways = [{}, {"UNIQ_KEY": "u" * 255}, {"DELAY": "3"}, {"TIMER_DELAY_MS": "1000"}]
    wanted = [*map(largest, ways), largest({}, 10), largest({}, 320)]
    acknowledged, found = asyncio.run(live(tmp_path, wanted))
    assert acknowledged == len(wanted) and found == len(wanted) + 1, "the batch has two messages"


@settings(max_examples=3, deadline=None, phases=_PHASES)
@given(st.lists(requests, min_size=20, max_size=40))
def test_nothing_ends_the_broker_and_what_it_acknowledged_is_there(wanted: list[Wanted]) -> None:
    play_through(wanted)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, phases=_PHASES)
@given(st.lists(requests, min_size=30, max_size=80))
def test_nothing_ends_the_broker_and_what_it_acknowledged_is_there_at_length(wanted: list[Wanted]) -> None:
    play_through(wanted)
