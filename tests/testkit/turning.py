"""Waiting without sleeping: for states that have no event of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

WITHIN_S = 60.0  # a hang ends some time; a busy machine is no hang


async def until(holds: Callable[[], object]) -> None:
    """Turn the loop until something is so; TimeoutError when it does not come."""
    async with asyncio.timeout(WITHIN_S):
        while not holds():  # noqa: ASYNC110  there is no event
            await asyncio.sleep(0.002)
