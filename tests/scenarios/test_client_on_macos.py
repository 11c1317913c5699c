"""The asyncio and the blocking client work without what only Linux has, against a broker that has it."""

from __future__ import annotations

from pathlib import Path

from testkit import darwin
from testkit.process import GantryProcess

_ASYNCIO = """
import asyncio, sys
from gantry.client.consumer import Consumer, ConsumerSettings, StartFrom
from gantry.client.producer import Message, Producer

nameserver, folder = sys.argv[1:]

async def consume(group, **more):
    settings = ConsumerSettings(start_from=StartFrom.FIRST, **more)
    async with Consumer(group, nameserver=nameserver, subscription={"Orders": "*"}, settings=settings) as consumer:
        async for message in consumer:
            print(group, message.body.decode())
            await message.ack()
            break

async def main():
    async with Producer("shop", nameserver=nameserver) as producer:
        await producer.send(Message("Orders", b"tea"))
    await consume("clustering")
    await consume("broadcasting", broadcast=True, offsets_folder=folder)

asyncio.run(main())
"""
_BLOCKING = """
import sys
from gantry.client.blocking import BlockingProducer, BlockingPuller, Message

with BlockingProducer("shop", nameserver=sys.argv[1]) as producer:
    result = producer.send(Message("Files", b"tea"))
with BlockingPuller("audit", nameserver=sys.argv[1]) as puller:
    print(puller.pull(result.queue, result.queue_offset, wait_s=5.0).messages[0].body.decode())
"""


def test_the_client_sends_and_consumes_without_what_only_linux_has(tmp_path: Path) -> None:
    with GantryProcess(tmp_path / "data") as process:
        nameserver = ":".join(map(str, process.addresses["nameserver"]))
        assert darwin.run(_ASYNCIO, nameserver, str(tmp_path)) == "clustering tea\nbroadcasting tea\n"
        assert darwin.run(_BLOCKING, nameserver) == "tea\n"
    assert next(tmp_path.rglob("broadcasting/offsets.json")).stat().st_size
