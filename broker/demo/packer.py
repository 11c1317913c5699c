"""A packer of the demonstration: one of the consumer group `packing`, which shares the orders among its members.

    python packer.py --namesrv HOST:PORT --ledger DIR --number N

An order is written into the packer's ledger first and confirmed afterwards: a packer that dies in between gets the
order again, and that is what "at least once" means.  SIGTERM ends it in order: its progress is saved.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import time
import zlib
from pathlib import Path
from typing import TextIO

from gantry.client.consumer import Consumer, ConsumerSettings, ReceivedMessage, StartFrom

GROUP = "packing"
TOPIC = "Orders"
REPORT_EVERY_S = 0.2


class Packer:
    """Packs orders and writes down which."""

    def __init__(self, ledger: TextIO) -> None:
        self.received_count = 0
        self._ledger = ledger

    async def pack(self, message: ReceivedMessage) -> None:
        """One order; when this returns the order is confirmed."""
        place = f"{message.queue.queue_id}:{message.stored.queue_offset}"
        line = (
            f"{message.keys[0]},{message.message_id},{place},{zlib.crc32(message.body)},{time.time_ns() // 1_000_000}"
        )
        print(line, file=self._ledger, flush=True)
        self.received_count += 1


async def run(arguments: argparse.Namespace) -> None:
    """Pack until SIGTERM."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    with (arguments.ledger / f"received-{arguments.number}.csv").open("w", encoding="utf-8") as ledger:
        packer = Packer(ledger)
        async with Consumer(
            GROUP,
            nameserver=arguments.namesrv,
            subscription={TOPIC: "*"},
            listener=packer.pack,
            settings=ConsumerSettings(start_from=StartFrom.FIRST),
        ):
            print("ready", flush=True)
            while not stopping.is_set():
                print(json.dumps({"received": packer.received_count}), flush=True)
                await asyncio.sleep(REPORT_EVERY_S)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Pack orders; see the module's text.")
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--number", required=True)
    asyncio.run(run(parser.parse_args()))
