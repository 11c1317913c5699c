"""What clients send in volume is judged and laid out by the compiled leaves, a run at a time.

Each way here is hot: Python decides for a run, not for a message.  A way that loses this costs ten times as much, and
nothing else would say so; therefore the calls of Python functions are counted, for a run of 64.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import FrameType

import pytest

from gantry.leaves import COMPILED, frames, properties
from gantry.model.topic import TopicConfig
from testkit.delayplay import DelayPlay
from testkit.sendplay import message

RUN = 64
CALLS_MAX = 2 * RUN + 16  # all of them, with the store's and those of a run; a closer look costs twenty a message
DELIVERY_CALLS_MAX = 4 * RUN  # most of these for a batch of 64; a closer look costs thirty a message
COMMON = {"KEYS": "order-1 customer-2", "TAGS": "paid", "WAIT": "true", "tenant": "acme", "客户": "北京"}
SHARDED = {"__SHARDINGKEY": "customer-2"}

counted = pytest.mark.skipif(not COMPILED, reason="missing compiled leaves; a C compiler and `make dev` build them")


def calls_of(work: Callable[[], object]) -> int:
    """How many functions of the product this calls."""
    calls = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_globals["__name__"].startswith("gantry.")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def run_of(topic: str, pairs: dict[str, str], sys_flag: int) -> list[frames.Send]:
    return [
        message(topic, b"x" * 100, {"UNIQ_KEY": f"{number:032x}"} | pairs, queue_id=number % 4, sys_flag=sys_flag)
        for number in range(RUN)
    ]


def started(topic: str, pairs: dict[str, str], sys_flag: int) -> DelayPlay:
    """A broker that knows the topic, and has had its first messages."""
    play = DelayPlay()
    for kind in ("NORMAL", "FIFO", "DELAY"):
        play.topics.put(TopicConfig(kind, read_queues=4, write_queues=4, attributes={"message.type": kind}))
    for _ in range(2):
        play.sending.send_run(play.connection, run_of(topic, pairs, sys_flag))  # type: ignore[arg-type]
        play.sending.append_gathered()
    assert {reply.code for reply in play.connection.take()} == {0}
    return play


WAYS = [
    ("plain", "orders", {}, 0),
    ("keys, tags and properties", "orders", COMMON, 0),
    ("keys and tags beyond ASCII", "orders", COMMON | {"KEYS": "订单-1 Zoë", "TAGS": "已付款"}, 0),
    ("compressed", "orders", COMMON, 1),
    ("sharding key", "orders", SHARDED, 0),
    ("topic of one type", "NORMAL", COMMON, 0),
    ("topic for ordered messages", "FIFO", SHARDED, 0),
    ("delay level", "orders", COMMON | {"DELAY": "3"}, 0),
    ("topic for delayed messages", "DELAY", {"DELAY": "3"}, 0),
    ("delay in seconds", "orders", {"TIMER_DELAY_SEC": "60"}, 0),
    ("delay in milliseconds", "orders", COMMON | {"TIMER_DELAY_MS": "60000"}, 0),
    ("time of delivery", "orders", {"TIMER_DELIVER_MS": "1700000060000"}, 0),
]


@counted
@pytest.mark.parametrize(("topic", "pairs", "sys_flag"), [way[1:] for way in WAYS], ids=[way[0] for way in WAYS])
def test_python_looks_at_no_message_by_itself(topic: str, pairs: dict[str, str], sys_flag: int) -> None:
    play = started(topic, pairs, sys_flag)
    run = run_of(topic, pairs, sys_flag)

    def send() -> None:
        play.sending.send_run(play.connection, run)  # type: ignore[arg-type]
        play.sending.append_gathered()

    calls = calls_of(send)
    assert [reply.code for reply in play.connection.take()] == [0] * RUN
    assert 0 < calls < CALLS_MAX, f"{calls} calls for {RUN} messages"


@counted
@pytest.mark.parametrize("is_ascii", [True, False], ids=["escaped", "utf-8"])
def test_python_reads_no_frame_by_itself_whatever_its_language(is_ascii: bool) -> None:
    pairs = COMMON | {"KEYS": "订单-1", "TAGS": "已付款", "name": "Zoë \U0001f600"}
    text = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())
    fields = {"a": "g", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": text}
    header = {"code": 310, "language": "JAVA", "opaque": 1, "flag": 0, "version": 479, "extFields": fields}
    data = json.dumps(header, ensure_ascii=is_ascii, separators=(",", ":")).encode()
    data = (4 + len(data)).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data
    found: list[object] = []
    assert calls_of(lambda: found.append(frames.decode(data * RUN, 0, len(data) * RUN))) == 0
    ((_, sends),) = found  # type: ignore[misc]
    assert [properties.parse(send.properties) for send in sends] == [pairs] * RUN


@counted
def test_plain_and_delayed_messages_in_one_run_are_taken_together() -> None:
    play = started("orders", {}, 0)
    pairs = zip(run_of("orders", {}, 0), run_of("orders", {"DELAY": "1"}, 0), strict=True)
    run = [send for two in pairs for send in two]

    def send() -> None:
        play.sending.send_run(play.connection, run)  # type: ignore[arg-type]
        play.sending.append_gathered()

    calls = calls_of(send)
    assert 0 < calls < 2 * CALLS_MAX, f"{calls} calls for {len(run)} messages"


@counted
@pytest.mark.parametrize("pairs", [{"DELAY": "1"}, {"TIMER_DELAY_MS": "1000"}], ids=["level", "time"])
def test_python_looks_at_no_delivery_by_itself(pairs: dict[str, str]) -> None:
    play = started("orders", pairs, 0)
    play.clock.advance(1500)

    def deliver() -> None:
        for _ in play.service.deliver() or ():
            pass

    calls = calls_of(deliver)
    assert sum(play.service.counts.delivered.values()) == 2 * RUN
    assert 0 < calls < 2 * DELIVERY_CALLS_MAX, f"{calls} calls for {2 * RUN} deliveries"


def test_a_delayed_message_that_is_refused_or_due_leaves_the_others_as_they_are() -> None:
    play = started("orders", {}, 0)
    delays = ["later", "soon", "7000", "1"]  # no number, a number, and a time that has passed
    pairs = [{"TIMER_DELIVER_MS": "x"}, {"DELAY": "1"}, {"TIMER_DELAY_MS": "7000"}, {"TIMER_DELIVER_MS": "1"}]
    run = [message("orders", name.encode(), one) for name, one in zip(delays, pairs, strict=True)]
    run.append(message("orders", b"plain", {}))
    before = play.store.next_queue_offset("orders", 0)
    play.sending.send_run(play.connection, run)  # type: ignore[arg-type]
    play.sending.send_run(play.connection, [message("orders", b"next", {})])  # type: ignore[arg-type]
    play.sending.append_gathered()
    codes = {reply.opaque: reply.code for reply in play.connection.take()}
    assert [codes[send.opaque] for send in run] == [13, 0, 0, 0, 0]
    stored = [play.store.reader.entry("orders", 0, offset) for offset in range(before, before + 3)]
    found = [play.store.reader.record(one) for one in stored if one is not None]
    assert [one and one.body for one in found] == [b"plain", b"1", b"next"]
    assert play.service.pending == 1 and properties.get(run[1].properties, b"REAL_TOPIC") == b"orders"
