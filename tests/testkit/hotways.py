"""The hot ways of broker and client as fixed replays: the same bytes in the same order at the same time, every run.

    with still_broker(folder) as still:
        for way in WAYS:
            for piece in way.replay(Ground(still)):
                piece.run()              # what belongs to the way, and nothing else
                                         # between two pieces: building requests, checking answers, the other side

What measures wraps `piece.run`: the test that counts calls of Python functions, `make gate` (instructions), `make
profile` (stacks).  A replay is one round; the first round of a way is for warming up and is not measured.  Every round
checks that all of it was answered with success, so a way that refuses quickly is an error and not a fast way.

A message has a body of 1 KiB and the properties of RocketMQ's Java client.  Producers send frames with JSON headers.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from gantry.broker.parts import Parts
from gantry.client import Consumer, Message, Producer
from gantry.client.received import ReceivedMessage
from gantry.client.results import SendResult
from gantry.client.settings import ConsumerSettings, StartFrom
from gantry.leaves import frames
from gantry.model.subscription import GroupConfig
from gantry.pop.records import REVIVE_QUEUES
from gantry.wire.codes import RequestCode
from testkit import brokerplay, popplay
from testkit.stillworld import NAMESERVER, Still

BODY = bytes(range(256)) * 4
RUN = 64  # messages of one read, where many come together
COUNT = 64  # messages of a round
PULL = 32  # messages of a pull
POPS, POP_MS = 16, 10_000  # pops of a round, and for how long each is leased
AGAIN = 8  # how often a round pulls the same messages
BATCH, BATCHES = 32, 16  # messages of a batch request; requests of a round: fewer would not warm the interpreter up
FILLER_BYTES, FILLERS = 400 << 10, 4  # more than the warm window together
_LARGE = b"a line that repeats itself with a number 4711 in it, as logs and documents do\n" * 64  # is compressed
_PACKED = zlib.compress(BODY)
_COMPRESSED, _HALF = "1", "4"  # of sysFlag
_COMMIT = 8
_GROUP = "readers"
_LOG_OFFSET = re.compile(r"([0-9A-F]{16})$")


class Piece(NamedTuple):
    """A part of a replay that is measured, and how many messages it finishes."""

    run: Callable[[], object]
    messages: int


class Ground:
    """What replays stand on: the broker, a connection to it, and what was stored or started before."""

    def __init__(self, still: Still) -> None:
        self.still = still
        self.peer = still.peer()
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None
        self.consumed = 0  # messages that the listener got
        self.kept: dict[str, list[frames.Command]] = {}  # answers to what was stored, by topic
        self._number = 0
        _parts(self).groups.put(GroupConfig(_GROUP))

    def frame(self, command: frames.Command) -> bytes:
        """Encode a request with a number of its own, as many digits for each."""
        self._number += 1
        command.opaque = 1_000_000 + self._number
        return frames.encode(command)

    def message(self, topic: str, body: bytes = BODY, flag: str = "0", **pairs: str) -> bytes:
        """A send to queue 0."""
        own = {"UNIQ_KEY": f"7F00000100002A9F{self._number:016X}", "WAIT": "true", "TAGS": "paid"}
        return self.frame(brokerplay.send(topic, body, 0, own | pairs, f=flag))

    def messages(self, topic: str, count: int, body: bytes = BODY, flag: str = "0", **pairs: str) -> list[bytes]:
        """Sends to queue 0."""
        return [self.message(topic, body, flag, **pairs) for _ in range(count)]

    def answers(self, count: int) -> list[frames.Command]:
        """Take this many answers, each of them a success."""
        found = self.peer.answers()
        wrong = [one for one in found if one.code != 0]
        assert len(found) == count and not wrong, f"{len(found)} answers of {count}, wrong: {wrong[:1]}"
        return found

    def stored(self, topic: str, count: int) -> list[frames.Command]:
        """Store messages at the first call; the answers to them."""
        if topic not in self.kept:
            self.peer.replay(runs(self.messages(topic, count)))
            self.kept[topic] = self.answers(count)
            self.still.settle()
        return self.kept[topic]

    def started_producer(self) -> Producer:
        """The producer of this process."""
        if self._producer is None:
            self._producer = Producer("producers", nameserver=NAMESERVER, clock=self.still.clock)
            self.still.run(self.still.client, self._producer.start())
        return self._producer

    def started_consumer(self) -> Consumer:
        """The consumer of this process; its pulls wait at the end of the queues."""
        if self._consumer is None:
            self.stored("Listened", 1)
            settings = ConsumerSettings(start_from=StartFrom.LAST)
            self._consumer = Consumer(
                "listeners",
                nameserver=NAMESERVER,
                subscription={"Listened": "*"},
                listener=self._listen,
                settings=settings,
                clock=self.still.clock,
            )
            self.still.run(self.still.client, self._consumer.start())
            self.still.pass_s(5.0)  # it has its queues
        return self._consumer

    def rest(self) -> None:
        """Let the periodic jobs run, and what waits for them."""
        self.still.pass_s(2.0)

    def stop(self) -> None:
        """Stop the clients."""
        for client in (self._producer, self._consumer):
            if client is not None:
                self.still.run(self.still.client, client.stop())

    async def _listen(self, message: ReceivedMessage) -> None:
        self.consumed += 1


class Way(NamedTuple):
    """One hot way; `replay` is one round."""

    name: str
    what: str
    replay: Callable[[Ground], Iterator[Piece]]


def runs(messages: Sequence[bytes]) -> list[bytes]:
    """Join them to reads of RUN messages."""
    return [b"".join(messages[at : at + RUN]) for at in range(0, len(messages), RUN)]


def _sends(topic: str, together: bool, body: bytes = BODY, flag: str = "0") -> Callable[[Ground], Iterator[Piece]]:
    def replay(ground: Ground) -> Iterator[Piece]:
        reads = ground.messages(topic, COUNT, body, flag)
        reads = runs(reads) if together else reads
        yield Piece(lambda: ground.peer.replay(reads), COUNT)
        ground.answers(COUNT)

    return replay


def _batches(ground: Ground) -> Iterator[Piece]:
    parts = [(BODY, {"UNIQ_KEY": f"7F00000100002A9F{number:016X}", "TAGS": "paid"}) for number in range(BATCH)]
    reads = [ground.frame(brokerplay.batch("Batches", parts)) for _ in range(BATCHES)]
    yield Piece(lambda: ground.peer.replay(reads), BATCH * BATCHES)
    ground.answers(len(reads))


def _transactions(together: bool) -> Callable[[Ground], Iterator[Piece]]:
    def replay(ground: Ground) -> Iterator[Piece]:
        halves = ground.messages("Paid", COUNT, flag=_HALF, TRAN_MSG="true", PGROUP="payers")
        reads = runs(halves) if together else halves
        yield Piece(lambda: ground.peer.replay(reads), COUNT)
        commits = [ground.frame(_commit(answer)) for answer in ground.answers(COUNT)]
        reads = runs(commits) if together else commits
        yield Piece(lambda: ground.peer.replay(reads), 0)
        ground.answers(COUNT)

    return replay


def _commit(answer: frames.Command) -> frames.Command:
    ext = {
        "topic": "Paid",
        "producerGroup": "payers",
        "tranStateTableOffset": answer.ext["queueOffset"],
        "commitLogOffset": str(_log_offset(answer)),
        "commitOrRollback": str(_COMMIT),
        "fromTransactionCheck": "false",
        "msgId": answer.ext["transactionId"],
    }
    return frames.Command(RequestCode.END_TRANSACTION, ext=ext)


def _log_offset(answer: frames.Command) -> int:
    found = _LOG_OFFSET.search(answer.ext["msgId"])
    assert found is not None
    return int(found[1], 16)


def _delayed(ground: Ground) -> Iterator[Piece]:
    reads = ground.messages("Later", COUNT, DELAY="1")
    yield Piece(lambda: ground.peer.replay(reads), COUNT)
    ground.answers(COUNT)


def _delivery(ground: Ground) -> Iterator[Piece]:
    still, parts = ground.still, _parts(ground)
    ground.peer.replay(ground.messages("Later", COUNT, DELAY="1"))
    ground.answers(COUNT)
    before = parts.store.next_queue_offset("Later", 0)
    still.world.now += 1.0

    def deliver() -> None:
        for _ in parts.delays.deliver() or ():
            pass

    yield Piece(lambda: still.within(still.serving, deliver), COUNT)
    delivered = parts.store.next_queue_offset("Later", 0) - before
    assert delivered == COUNT, f"{delivered} delivered of {COUNT}"


def _sent_back(together: bool) -> Callable[[Ground], Iterator[Piece]]:
    def replay(ground: Ground) -> Iterator[Piece]:
        reads = [ground.frame(_send_back(answer)) for answer in ground.stored("Consumed", COUNT)]
        reads = runs(reads) if together else reads
        yield Piece(lambda: ground.peer.replay(reads), COUNT)
        ground.answers(COUNT)

    return replay


def _send_back(answer: frames.Command) -> frames.Command:
    ext = {
        "group": _GROUP,
        "offset": str(_log_offset(answer)),
        "delayLevel": "3",
        "originMsgId": answer.ext["transactionId"],
        "originTopic": "Consumed",
        "unitMode": "false",
        "maxReconsumeTimes": "16",
    }
    return frames.Command(RequestCode.CONSUMER_SEND_MSG_BACK, ext=ext)


def _pulls_near(ground: Ground) -> Iterator[Piece]:
    end = _stored_now(ground, "Near")
    return _pulls(ground, "Near", end - COUNT)


def _pulls_far(ground: Ground) -> Iterator[Piece]:
    ground.stored("Far", COUNT)
    if "Filler" not in ground.kept:
        for _ in range(FILLERS):
            ground.peer.replay([ground.message("Filler", bytes(FILLER_BYTES))])
        ground.kept["Filler"] = ground.answers(FILLERS)
    store = _parts(ground).store
    last = store.reader.entry("Far", 0, COUNT - 1)
    assert last is not None and store.written.offset - last[0] > store.settings.warm_bytes, "no pull is far behind"
    yield from _pulls(ground, "Far", 0)


def _pulls(ground: Ground, topic: str, start: int) -> Iterator[Piece]:
    offsets = [*range(start, start + COUNT, PULL)] * AGAIN
    reads = [ground.frame(brokerplay.pull(topic, at)) for at in offsets]
    yield Piece(lambda: ground.peer.replay(reads), COUNT * AGAIN)
    sizes = {len(answer.body) for answer in ground.answers(len(reads))}
    assert len(sizes) == 1 and sizes.pop() > PULL * len(BODY), "an answer does not hold all that was asked for"


def _pops(ground: Ground) -> Iterator[Piece]:
    still, parts = ground.still, _parts(ground)
    count = POPS * PULL
    ground.peer.replay(runs(ground.messages("Popped", count)))
    ground.answers(count)
    pop = popplay.pop_request(PULL, POP_MS, consumerGroup=_GROUP, topic="Popped", queueId=0)
    reads = [ground.frame(pop) for _ in range(POPS)]
    yield Piece(lambda: ground.peer.replay(reads), count)
    popped = [popplay.popped(one, _GROUP) for one in ground.answers(POPS)]
    assert all(len(found) == PULL for found in popped), "a pop does not hold all that was asked for"
    acks = [ground.frame(popplay.batch_ack_request(found, _GROUP, "Popped")) for found in popped]
    yield Piece(lambda: ground.peer.replay(acks), 0)
    assert not any(one.body for one in ground.answers(POPS)), "a handle was stale"
    before, revived = _revived(parts), parts.pops.service.counts.revived
    still.world.now += POP_MS / 1000 + 2  # leases, and acknowledgements a second behind them, are due

    def settle() -> None:
        for job in (parts.delays.deliver(), parts.pops.reviver.run()):
            for _ in job or ():
                pass

    yield Piece(lambda: still.within(still.serving, settle), 0)
    assert _revived(parts) - before == 2 * POPS, "not all leases and acknowledgements were delivered"
    assert parts.pops.service.counts.revived == revived, "an acknowledged message came again"


def _revived(parts: Parts) -> int:
    topic = parts.pops.service.rules.revive_topic
    return sum(parts.store.next_queue_offset(topic, queue) for queue in range(REVIVE_QUEUES))


def _pulls_held(ground: Ground) -> Iterator[Piece]:
    ground.stored("Held", 1)
    start = _parts(ground).store.next_queue_offset("Held", 0)
    reads = []
    for at in range(start, start + COUNT):
        held = brokerplay.pull("Held", at, sysFlag="6", suspendTimeoutMillis="15000")
        reads += [ground.frame(held), ground.message("Held")]
    yield Piece(lambda: ground.peer.replay(reads), COUNT)
    ground.answers(2 * COUNT)


def _produced(topic: str, body: bytes) -> Callable[[Ground], Iterator[Piece]]:
    def replay(ground: Ground) -> Iterator[Piece]:
        still, producer = ground.still, ground.started_producer()
        messages = [Message(topic, body, tags="paid", keys=(f"order-{number}",)) for number in range(COUNT)]
        still.run(still.client, producer.send(messages[0]))  # knows the route from here on
        sends: list[asyncio.Task[SendResult]] = []

        def begin() -> None:
            sends.extend([still.client.create_task(producer.send(message)) for message in messages])
            still.turn(still.client)

        yield Piece(begin, COUNT)
        while still.receive(still.serving):
            yield Piece(lambda: still.receive(still.client), 0)
        assert len({send.result().message_id for send in sends}) == COUNT

    return replay


def _consumed(ground: Ground) -> Iterator[Piece]:
    still = ground.still
    ground.started_consumer()
    before = ground.consumed
    _stored_now(ground, "Listened")
    yield Piece(lambda: still.receive(still.client), COUNT)
    while still.receive(still.serving):
        yield Piece(lambda: still.receive(still.client), 0)
    consumed = ground.consumed - before
    assert consumed == COUNT, f"{consumed} messages consumed of {COUNT}"


def _stored_now(ground: Ground, topic: str) -> int:
    """Store messages; the offset behind them."""
    ground.peer.replay(runs(ground.messages(topic, COUNT)))
    ground.answers(COUNT)
    return _parts(ground).store.next_queue_offset(topic, 0)


def _parts(ground: Ground) -> Parts:
    parts = ground.still.broker.parts
    assert parts is not None
    return parts


WAYS = (
    Way("send", "plain send, one a turn", _sends("Orders", together=False)),
    Way("send-run", f"plain sends, {RUN} a turn", _sends("Orders", together=True)),
    Way("send-compressed", f"sends with a compressed body, {RUN} a turn", _sends("Packed", True, _PACKED, _COMPRESSED)),
    Way("batch", f"batch requests of {BATCH} messages", _batches),
    Way("transaction", "half message and commit, one a turn", _transactions(together=False)),
    Way("transaction-run", f"half messages and commits, {RUN} a turn", _transactions(together=True)),
    Way("delayed", "delayed send, one a turn", _delayed),
    Way("delivery", "delivery of a delayed message", _delivery),
    Way("send-back", "send-back of a consumed message, one a turn", _sent_back(together=False)),
    Way("send-back-run", f"send-backs of consumed messages, {RUN} a turn", _sent_back(together=True)),
    Way("pull-near", f"pull of {PULL} messages near the end of the log", _pulls_near),
    Way("pull-far", f"pull of {PULL} messages far behind, in the page cache", _pulls_far),
    Way("pull-held", "pull that waits at the end, and the send that ends it", _pulls_held),
    Way("pop", f"pop of {PULL} messages, their acknowledgement in one request, and the delivery of both", _pops),
    Way("client-send", f"client: {COUNT} sends under way", _produced("Produced", BODY)),
    Way("client-send-compressed", "client: the same, compressing bodies of 5 KiB", _produced("Produced", _LARGE)),
    Way("client-consume", "client: a listener that returns at once", _consumed),
)
