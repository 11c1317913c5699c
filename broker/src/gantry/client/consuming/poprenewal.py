"""Keeps the leases of messages that are still in work.

    GantryMQ's broker renews itself     it is told every ten seconds that this client, the owner of the leases, lives
    RocketMQ's brokers, orderly pops    this client changes the invisible time of each message when half of it is over

A broker is told first; one that refuses that as not supported gets changes.  When the client dies, nobody renews, and
its messages are visible after the invisible time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from gantry.client.popped import PoppedMessage, receipt_of
from gantry.client.popping import Popping
from gantry.errors import GantryError, RefusedError
from gantry.model.route import MessageQueue
from gantry.wire.codes import ResponseCode

log = logging.getLogger(__name__)

EVERY_S = 10.0  # brokers take a client for dead after 30 s
_LOOK_S = 1.0


class Held:
    """A popped message from its pop until it is settled; `renewed_s` is the loop time of its last lease."""

    __slots__ = ("bytes", "in_hand", "is_over", "message", "renewed_s")

    def __init__(self, message: PoppedMessage, now_s: float) -> None:
        self.message = message
        self.renewed_s = now_s
        self.bytes = max(message.stored.size, len(message.body))
        self.in_hand = False  # it was handed out
        self.is_over = False  # it is being settled, or given back


class PopRenewal:
    """The renewal of one consumer's leases."""

    def __init__(self, popping: Popping, group: str, client_id: str, invisible_s: float) -> None:
        self._popping = popping
        self._group = group
        self._client_id = client_id
        self._invisible_s = invisible_s
        self._told_s: dict[str, float] = {}  # when a broker was told last
        self._refusing: set[str] = set()  # brokers that do not renew themselves

    def renews_itself(self, broker_name: str) -> bool:
        """Return whether a broker has said, or may still say, that it renews the leases."""
        return broker_name not in self._refusing

    async def run(self, targets: dict[str, MessageQueue], held: set[Held]) -> None:
        """Renew until cancelled; both arguments are the caller's and change."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            due = [one for name, one in targets.items() if now - self._told_s.get(name, -EVERY_S) >= EVERY_S]
            await asyncio.gather(*(self._tell(target, now) for target in due), self._change(list(held), now))
            await asyncio.sleep(_LOOK_S)

    async def end(self, targets: Iterable[MessageQueue]) -> None:
        """Tell the brokers that this client ends, so that what it leaves is visible in a second."""
        told = [target for target in targets if self.renews_itself(target.broker_name)]
        asked = [self._popping.end_owner(self._client_id, self._group, target) for target in told]
        for target, error in zip(told, await asyncio.gather(*asked, return_exceptions=True), strict=True):
            if isinstance(error, BaseException):
                log.debug("%s: not told that this client ends: %s", target.broker_name, error)

    async def _tell(self, target: MessageQueue, now: float) -> None:
        if not self.renews_itself(target.broker_name):
            return
        self._told_s[target.broker_name] = now
        try:
            await self._popping.keep_owner(self._client_id, [self._group], target)
        except RefusedError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                self._refusing.add(target.broker_name)
        except GantryError as error:
            self._told_s[target.broker_name] = now - EVERY_S + _LOOK_S
            log.debug("%s: not told that this client lives: %s", target.broker_name, error)

    async def _change(self, held: Iterable[Held], now: float) -> None:
        due = [
            one
            for one in held
            if not one.is_over
            and now - one.renewed_s > self._invisible_s / 2
            and (receipt_of(one.message).is_orderly or not self.renews_itself(receipt_of(one.message).broker))
        ]
        for one in due:
            one.renewed_s = now
        await asyncio.gather(*map(self._extend, due))

    async def _extend(self, one: Held) -> None:
        message, before = one.message, receipt_of(one.message)
        try:
            after = await self._popping.change(self._group, message.source, before, self._invisible_s, _LOOK_S)
        except GantryError as error:
            log.warning("%r: its time could not be extended: %s", message, error)
            return
        if message.receipt is before:
            message.receipt = after
