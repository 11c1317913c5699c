"""A topic's message.type: every way of sending is asked where the broker checks it, none else, and nothing that was
accepted is refused afterwards.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gantry.client.outgoing import prepare, sharding
from gantry.client.requests import questions
from gantry.leaves.frames import Command
from gantry.model.message import Message
from gantry.model.route import MessageQueue
from gantry.model.topic import TopicConfig
from gantry.schedule import handles
from gantry.schedule.handles import Handle
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.brokerplay import batch, peer, running_broker, send
from testkit.delayplay import DelayPlay
from testkit.transactionplay import COMMIT, TOPIC, TransactionPlay

REFUSED = ResponseCode.MESSAGE_ILLEGAL
TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION")


class Ids:
    def next(self) -> str:
        return "id"


def keyed(topic: str) -> Command:
    """What our client sends with a key."""
    message = prepare(Message(topic, b"x"), Ids(), 1, more=sharding("o-1"))
    return questions.send("g", message, MessageQueue(topic, "broker-a", 0)).command


def ways(topic: str) -> dict[str, tuple[str, Command]]:
    """By name: the type, and the request."""
    half = {"TRAN_MSG": "true", "PGROUP": "g", "UNIQ_KEY": "h"}
    return {
        "plain": ("NORMAL", send(topic, b"x")),
        "batch": ("NORMAL", batch(topic, [(b"x", {}), (b"y", {})])),
        "batch with one ordered": ("", batch(topic, [(b"x", {}), (b"y", {"__SHARDINGKEY": "1"})])),
        "ordered batch": ("FIFO", batch(topic, [(b"x", {"__SHARDINGKEY": "1"})])),
        "with a key": ("FIFO", keyed(topic)),
        "level": ("DELAY", send(topic, b"x", pairs={"DELAY": "1"})),
        "time": ("DELAY", send(topic, b"x", pairs={"TIMER_DELAY_MS": "60000"})),
        "half": ("TRANSACTION", send(topic, b"x", pairs=half, f="4")),
        "delayed half": ("TRANSACTION", send(topic, b"x", pairs=half | {"DELAY": "1"}, f="4")),
        "half of 3.2.6": ("TRANSACTION", send(topic, b"x", pairs={"PGROUP": "g"}, f="4")),
    }


async def test_every_way_of_sending_is_asked(tmp_path: Path) -> None:
    checking = running_broker(tmp_path, topics__check_message_type=True)
    async with checking as broker, peer(broker) as client:
        topics = broker.parts.topics
        for kind in (*TYPES, "MIXED", "UNSPECIFIED"):
            topics.put(TopicConfig(kind, 4, 4, attributes={"message.type": kind}))
            for way, (is_of, command) in ways(kind).items():
                answer = await client.call(command)
                wanted = 0 if kind in (is_of, "MIXED", "UNSPECIFIED") else REFUSED
                assert answer.code == wanted, f"{way} to {kind}: {answer.remark}"
        hot = Command(RequestCode.UPDATE_BROKER_CONFIG, body=b"topics.check_message_type=false\n")
        assert (await client.call(hot)).code == 0
        for way, (_, command) in ways("FIFO").items():
            assert (await client.call(command)).code == 0, way


async def test_a_broker_that_is_not_told_to_check_takes_every_message_as_rocketmqs_does(tmp_path: Path) -> None:
    """Java's orderly producers never set a sharding key, and its tests send plain messages to DELAY topics."""
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        for kind in TYPES:
            broker.parts.topics.put(TopicConfig(kind, 4, 4, attributes={"message.type": kind}))
            for way, (_, command) in ways(kind).items():
                assert (await client.call(command)).code == 0, f"{way} to {kind}"


@pytest.mark.parametrize("kind", TYPES)
def test_a_half_that_was_accepted_is_committed_whatever_the_topics_type_has_become(kind: str) -> None:
    play = TransactionPlay()
    half, delayed = play.half(b"paid"), play.half(b"paid later", DELAY="1")
    config = play.topics.get(TOPIC)
    assert config is not None and half.code == delayed.code == 0
    play.topics.put(replace(config, attributes={"message.type": kind}))
    assert [play.end(one, COMMIT) for one in (half, delayed)] == [0, 0]
    assert play.visible() == [(b"paid", half.key)]


@pytest.mark.parametrize("kind", TYPES)
def test_a_delayed_message_that_was_accepted_is_delivered_or_taken_back(kind: str) -> None:
    play = DelayPlay()
    due_ms = play.clock.now_ms() + 500
    for key in ("stays", "goes"):
        assert play.send(key.encode(), UNIQ_KEY=key, TIMER_DELIVER_MS=str(due_ms)).code == 0
    assert play.send(b"level", DELAY="1").code == 0
    config = play.topics.get("orders")
    assert config is not None
    play.topics.put(replace(config, attributes={"message.type": kind}))
    handle = handles.encode(Handle("orders", "b", due_ms, "goes"))
    assert play.ask(RequestCode.RECALL_MESSAGE, topic="orders", recallHandle=handle, producerGroup="g").code == 0
    play.pass_ms(1500)
    assert sorted(play.visible()) == [b"level", b"stays"]
