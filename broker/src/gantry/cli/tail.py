"""`gantry tail TOPIC`: print new messages of all queues as they arrive, and change nothing.

With --last it begins with so many stored messages of each queue.  It ends by --count, --idle or Ctrl-C.  Queues that
are added meanwhile are read from their beginning; a broker that stops is waited for.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys

from gantry.cli.clientflags import add_client_flags, refuse, run_client
from gantry.cli.looking import TOOLS_GROUP, print_message
from gantry.cli.numbers import DAY_S, Number, Whole
from gantry.cli.output import add_output
from gantry.client.puller import Puller
from gantry.errors import OutcomeUnknownError, RefusedError, RemoteProtocolError, UnreachableError
from gantry.model.message import StoredMessage
from gantry.model.names import topic_fault
from gantry.model.route import MessageQueue

_FAULTS = (RefusedError, UnreachableError, OutcomeUnknownError, RemoteProtocolError)
_WAIT_S = 15.0
_PAUSE_S = 1.0
_LOOK_S = 10.0  # new queues are looked for so often
_READY_MAX = 1000  # with so many messages not printed yet, the pulls wait


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--tags", metavar="EXPRESSION", default="*", help="such as 'paid || refunded' (default: all)")
    parser.add_argument(
        "--last", metavar="N", type=Whole(0), default=0, help="begin so many back in each queue (default: %(default)s)"
    )
    parser.add_argument("--count", metavar="N", type=Whole(0), default=0, help="end after so many messages (0: never)")
    wait = Number(0.0, DAY_S)
    parser.add_argument(
        "--idle", metavar="SECONDS", type=wait, default=0.0, help="end when nothing came for so long (0: never)"
    )
    add_client_flags(parser)
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Pull and print messages. Return the exit code."""
    refuse(topic_fault(arguments.topic))
    return run_client(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    async with Puller(TOOLS_GROUP, nameserver=arguments.namesrv, timeout_s=arguments.timeout) as puller:
        watch = _Watch(puller, arguments.topic, arguments.tags)
        begins = {}
        for queue in await puller.queues(arguments.topic):
            begins[queue] = max(await puller.min_offset(queue), await puller.max_offset(queue) - arguments.last)
        printing = asyncio.ensure_future(_print(watch.ready, arguments))
        looking = asyncio.ensure_future(watch.run(begins))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, printing.cancel)
        print(f"gantry: watching {len(begins)} queues of {arguments.topic}", file=sys.stderr, flush=True)
        await asyncio.wait({printing, looking}, return_when=asyncio.FIRST_COMPLETED)
        for task in (printing, looking):
            task.cancel()
        results = await asyncio.gather(printing, looking, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result
    return 0


async def _print(ready: asyncio.Queue[StoredMessage], arguments: argparse.Namespace) -> None:
    printed = 0
    try:
        while not arguments.count or printed < arguments.count:
            async with asyncio.timeout(arguments.idle or None):
                message = await ready.get()
            print_message(message, arguments.output)
            printed += 1
    except TimeoutError:
        return


class _Watch:
    """Pulls all queues of a topic, also those that are added later."""

    def __init__(self, puller: Puller, topic: str, tags: str) -> None:
        self.ready: asyncio.Queue[StoredMessage] = asyncio.Queue(_READY_MAX)
        self._puller = puller
        self._topic = topic
        self._tags = tags

    async def run(self, begins: dict[MessageQueue, int]) -> None:
        """Pull every queue, and look for new ones, until cancelled."""
        known: set[MessageQueue] = set()
        async with asyncio.TaskGroup() as tasks:
            while True:
                for queue, begin in begins.items():
                    tasks.create_task(self._follow(queue, begin))
                known |= begins.keys()
                await asyncio.sleep(_LOOK_S)
                try:
                    begins = {queue: 0 for queue in await self._puller.queues(self._topic) if queue not in known}
                except _FAULTS:
                    begins = {}

    async def _follow(self, queue: MessageQueue, offset: int) -> None:
        is_lost = False
        while True:
            try:
                result = await self._puller.pull(queue, offset, tags=self._tags, wait_s=_WAIT_S)
            except _FAULTS as error:
                if not is_lost:
                    print(f"gantry: {queue.broker_name}/{queue.queue_id}: {error}; trying again", file=sys.stderr)
                is_lost = True
                await asyncio.sleep(_PAUSE_S)
                continue
            is_lost = False
            for message in result.messages:
                await self.ready.put(message)
            offset = result.next_offset
