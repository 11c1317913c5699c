"""The order of a sharding key at a broker that refuses and forgets to answer, as a test says."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable

import pytest

from gantry.leaves import properties, records
from gantry.leaves.frames import Command
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply
from pyspark_gantrymq import sinkoptions
from pyspark_gantrymq.sinkcolumns import Row
from pyspark_gantrymq.sinksending import SinkSender
from testkit.scripted import ScriptedCluster, stored

SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
LARGE = b"x" * 1000
Answer = Callable[[Command], Command | None]


class Broker:
    """Stores what it does not refuse; `log` has (key, number, queue) in the order in which they were stored first."""

    def __init__(self, cluster: ScriptedCluster, mood: Callable[[], str]) -> None:
        self.log: list[tuple[str, int, str]] = []
        self.requests = 0
        self.sizes: list[int] = []  # messages of each request
        self._cluster = cluster
        self._mood = mood
        for code in SENDS:
            cluster.answers["broker-a", code] = self.answer

    def answer(self, command: Command) -> Command | None:
        self.requests += 1
        is_batch = command.code == RequestCode.SEND_BATCH_MESSAGE
        alone = [(0, command.body, command.ext["i"].encode())]
        messages = records.split_batch(command.body) if is_batch else alone
        self.sizes.append(len(messages))
        if any(body == LARGE for _, body, _ in messages):
            return reply(command, ResponseCode.MESSAGE_ILLEGAL, "too large")
        mood = self._mood()
        if mood == "busy":
            return reply(command, ResponseCode.SYSTEM_BUSY, "busy")
        if mood != "lost before":
            for _, _, packed in messages:
                pairs = dict(properties.parse(packed))
                key, number = pairs["UNIQ_KEY"].split("-")
                assert pairs.get("__SHARDINGKEY", "") == key
                if (key, int(number), command.ext["e"]) not in self.log:
                    self.log.append((key, int(number), command.ext["e"]))
        if mood.startswith("lost"):
            for connection in self._cluster.connections("broker-a"):
                connection.abort("a test says so")
            return None
        return stored(command)

    def by_key(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for key, number, _ in self.log:
            found[key].append(number)
        return found


def row(key: str, number: int, body: bytes = b"row") -> Row:
    message_id = f"{key}-{number}"
    packed = properties.pack({"__SHARDINGKEY": key, "UNIQ_KEY": message_id})
    return Row("orders", body, packed, message_id, key=key)


def send(rows: list[Row], mood: Callable[[], str], extra: bytes = b"", **options: str) -> tuple[Broker, list[str]]:
    """What the broker has then, and whom it refused for good."""
    refused: list[str] = []

    async def story() -> Broker:
        async with ScriptedCluster(1, queues=4) as cluster:
            broker = Broker(cluster, mood)
            given = sinkoptions.read({"gantrymq.namesrv": cluster.nameserver, "sendTimeoutMs": "20000", **options})

            def work() -> None:
                sender = SinkSender(given, "", "", extra, refused=lambda row, why: refused.append(row.message_id))
                try:
                    for each in rows:
                        sender.send(each)
                    sender.finish()
                finally:
                    sender.close()

            await asyncio.to_thread(work)
            return broker

    return asyncio.run(story()), refused


@pytest.mark.parametrize("extra", [b"", b"TRAN_MSG\x01true\x02"], ids=["at-least-once", "transactional"])
def test_one_refusal_lets_no_later_row_of_its_key_overtake(extra: bytes) -> None:
    moods = iter(["busy"])
    broker, _ = send([row("k", number) for number in range(1, 6)], lambda: next(moods, "well"), extra)
    assert [number for _, number, _ in broker.log] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("batch_size", ["1", "8"])
def test_keys_keep_their_order_over_refusals_and_lost_answers(seed: int, batch_size: str) -> None:
    chance = random.Random(seed)
    moods = ["busy", "lost before", "lost behind"] + 40 * ["well"]
    rows = [row(f"k{chance.randrange(12)}", number) for number in range(600)]
    broker, _ = send(rows, lambda: chance.choice(moods), sendBatchSize=batch_size, inFlight="8")
    expected = {
        key: [int(one.message_id.partition("-")[2]) for one in rows if one.key == key] for key in broker.by_key()
    }
    assert broker.by_key() == expected and len(broker.log) == len(rows)
    assert len({(key, queue) for key, _, queue in broker.log}) == len(expected), "a key has one queue"


def test_a_row_that_is_refused_for_good_costs_its_neighbours_neither_place_nor_order() -> None:
    rows = [row("k", number, LARGE if number in (3, 4, 50) else b"row") for number in range(100)]
    broker, refused = send(rows, lambda: "well", sendBatchSize="16")
    assert refused == ["k-3", "k-4", "k-50"]
    assert broker.by_key() == {"k": [number for number in range(100) if number not in (3, 4, 50)]}


def unkeyed(count: int, body: bytes) -> list[Row]:
    ids = [f"-{number}" for number in range(count)]
    return [Row("orders", body, properties.pack({"__SHARDINGKEY": "", "UNIQ_KEY": each}), each) for each in ids]


def test_a_request_has_as_many_messages_and_bytes_as_the_options_say() -> None:
    broker, _ = send(unkeyed(100, b"row"), lambda: "well", sendBatchSize="10")
    assert broker.sizes == [10] * 10
    broker, _ = send(unkeyed(100, b"row"), lambda: "well", sendBatchSize="30")
    assert sorted(broker.sizes) == [10, 30, 30, 30]
    broker, _ = send(unkeyed(100, b"x" * 300), lambda: "well", lingerBytes="1500")
    assert broker.sizes == [5] * 20
    broker, _ = send(unkeyed(100, b"x" * 300), lambda: "well", lingerBytes="1")
    assert broker.sizes == [1] * 100


async def test_a_row_goes_to_the_group_and_the_queue_that_it_names() -> None:
    async with ScriptedCluster(3, queues=4) as cluster:
        given = sinkoptions.read({"gantrymq.namesrv": cluster.nameserver, "sendTimeoutMs": "20000"})

        def work() -> None:
            sender = SinkSender(given, "", "")
            for each in unkeyed(40, b"row"):
                sender.send(each._replace(broker="broker-b", queue_id=3 if each.message_id < "-2" else -1))
            sender.finish()
            sender.close()

        await asyncio.to_thread(work)
        found = [(who, command.ext["e"]) for who, command in cluster.received if command.code in SENDS]
    assert {who for who, _ in found} == {"broker-b"} and len(found) == 40
    named = sum(each.message_id < "-2" for each in unkeyed(40, b"row"))
    assert [queue for _, queue in found].count("3") >= named and {queue for _, queue in found} == {"0", "1", "2", "3"}


def test_rows_of_one_key_share_requests_and_rows_of_many_keys_do_not_wait() -> None:
    broker, _ = send([row("k", number) for number in range(5000)], lambda: "well")
    assert broker.by_key() == {"k": list(range(5000))}
    assert broker.requests < 500
    broker, _ = send([row(f"k{number}", number) for number in range(500)], lambda: "well")
    assert broker.requests == 500 == len(broker.log)
