"""Requests as a client would make them, for handlers that take a `Command`; and hot ones as a Command again."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine

from gantry.leaves import frames
from gantry.wire.bodies import dumps

_OPAQUE = 4711


def request(code: int, body: bytes | dict[str, object] = b"", **ext: str | int) -> frames.Command:
    """A command with these header fields; a dict body becomes JSON."""
    content = body if isinstance(body, bytes) else dumps(body)
    return frames.Command(
        int(code), language=0, opaque=_OPAQUE, ext={name: str(value) for name, value in ext.items()}, body=content
    )


def answered(answer: frames.Command | Awaitable[frames.Command]) -> frames.Command:
    """What a handler of the table answers, at once or later, outside of a loop."""

    async def waited(later: Awaitable[frames.Command]) -> frames.Command:
        async with asyncio.timeout(60.0):
            return await later

    return asyncio.run(waited(answer)) if inspect.isawaitable(answer) else answer


def end_as_command(end: frames.End) -> frames.Command:
    """What a client wrote, as far as a broker reads it."""
    command = frames.Command(end.code, opaque=end.opaque, flag=end.rpc_flag)
    command.ext = {
        "producerGroup": end.group,
        "tranStateTableOffset": str(end.queue_offset),
        "commitLogOffset": str(end.log_offset),
        "commitOrRollback": str(end.kind),
        "fromTransactionCheck": "true" if end.from_check else "false",
        "msgId": end.message_id,
        "transactionId": end.transaction_id,
    }
    return command


def within(work: Coroutine[object, object, None], step: Callable[[], object]) -> None:
    """Run a coroutine outside of a loop; `step` is called between its turns, for what a test does at once."""

    async def run() -> None:
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.sleep(0)
            step()
        await task

    asyncio.run(run())
