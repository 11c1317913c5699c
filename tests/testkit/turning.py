"""Waiting without sleeping: for states that have no event of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from testkit.patience import HANG_S


async def until(holds: Callable[[], object]) -> None:
    """Turn the loop until something is so; TimeoutError when it does not come."""
    async with asyncio.timeout(HANG_S):
        while not holds():  # noqa: ASYNC110  there is no event
            await asyncio.sleep(0.002)
