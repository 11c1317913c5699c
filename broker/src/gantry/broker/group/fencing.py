"""Answers `/ha/v1` for this broker: its state, and seals.

A seal is a promise: nothing is accepted, acknowledged or confirmed in a lower epoch.  First nothing of such an epoch
begins any more, then the promise is on the disk, then the member stops in one turn of the loop, then it answers:
    a master    refuses writes, answers waiting producers "outcome unknown", confirms nothing, ends its links, delivers
                            nothing
    a slave     ends its link, and follows no master of a lower epoch again

It stays so until the broker ends; reads continue up to the confirmed offset.  The next start leads or follows again, in
an epoch above the promise.  While a planned cut of the log is pending a seal is postponed (423), because the log
offsets in the answer have to stay valid.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from gantry.append.writing import GATE_DISK_FULL
from gantry.broker.role.master_role import GATE_SHORT, GATE_TAIL, MasterRole
from gantry.broker.settings import sources
from gantry.replication.haapi import Answer, refuse, why_not_sealed
from gantry.replication.haproof import Keys
from gantry.replication.hastate import MemberRole, MemberState
from gantry.store.jobs import wait_until_done

if TYPE_CHECKING:
    from gantry.broker.parts import Parts
    from gantry.broker.role.membership import Membership
    from gantry.broker.role.promise_writer import PromiseWriter
    from gantry.broker.role.slave_role import SlaveRole
    from gantry.broker.settings.config import BrokerConfig
    from gantry.clock import Clock
    from gantry.replication.haserver import HaServer, OrderHandler

_WRITABLE_ALL_THE_SAME = frozenset({GATE_DISK_FULL, GATE_SHORT, GATE_TAIL})
_RESTART_MS = 1000
_WAITING_MAX = 8  # seals that wait for the disk; the coordinator gives up earlier and repeats
_DOOR = "gantry.replication.haserver"


class Fencing:
    """Implements `replication.haserver.SealedMember`; loop thread only."""

    def __init__(
        self,
        member: Membership,
        name: str,
        role: MasterRole | SlaveRole,
        promise_writer: PromiseWriter,
        parts: Parts,
    ) -> None:
        self._member = member
        self._name = name
        self._role = role
        self._promise_writer = promise_writer
        self._parts = parts
        self._turn = asyncio.Lock()
        self._waiting = 0

    @property
    def keys(self) -> Keys:
        """The keys that callers have to prove."""
        return self._member.keys

    def state(self) -> MemberState:
        """Return this member's present state."""
        store, member = self._parts.store, self._member
        end = store.written.offset
        table = member.epochs.within(end)
        role, is_sound, shut = self._role.status(), store.failed is None, self._parts.gate.reasons
        is_master = role is MemberRole.MASTER
        return MemberState(
            member.identity.cluster_uid,
            self._name,
            member.identity.store_uid,
            member.me,
            role,
            member.epochs.last_epoch,
            member.term_promise.promise,
            table.epoch_at(end - 1) if end else 0,
            store.reader.log_start,
            end,
            min(store.confirmed.offset, end),
            is_master and is_sound and _WRITABLE_ALL_THE_SAME.issuperset(shut),
            GATE_SHORT in shut,  # also after the seal: a new coordinator does not know why the master was sealed
            GATE_DISK_FULL in shut or bool(store.why_full),
            member.terms,
            is_disk_late=isinstance(self._role, MasterRole) and self._role.is_disk_late,
            are_links_late=isinstance(self._role, MasterRole) and self._role.are_links_late,
        )

    def settings(self) -> Mapping[str, object]:
        """Return the configuration by dotted key: texts, numbers, lists of texts."""
        values = sources.flat(self._parts.live.current)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}

    def more(self) -> Mapping[str, object]:
        """The set and how far slaves are, or how far we are behind the master; why writes are refused."""
        parts = self._parts
        shut = parts.gate.reasons
        common: dict[str, object] = {"refusing": shut, "diskUsed": round(parts.store.stats().disk_used, 3)}
        if parts.losses is not None and parts.losses.messages:
            common |= {"lostMessages": parts.losses.messages, "lostBytes": parts.losses.bytes}
        return {**common, **self._role.report()}

    async def seal(self, epoch: int) -> Answer | None:
        """Promise the epoch and stop in lower ones. None: done; else the refusal. StoreError when the disk fails."""
        if self._waiting > _WAITING_MAX:
            return refuse(423, "the disk has not taken an earlier promise yet", retryAfterMs=_RESTART_MS)
        self._waiting += 1
        try:
            return await self._seal(epoch)
        finally:
            self._waiting -= 1

    async def _seal(self, epoch: int) -> Answer | None:
        async with self._turn:
            late = why_not_sealed(self.state(), epoch)
            if late is not None:
                return late
            role = self._role
            if role.is_reshaping:
                return refuse(423, "the broker starts again, to change its log", retryAfterMs=_RESTART_MS)
            await wait_until_done(partial(self._promise_writer.promise, epoch))
            role.step_down(epoch)
            return None


async def open_door(
    config: BrokerConfig, fencing: Fencing, clock: Clock, orders: OrderHandler | None
) -> tuple[HaServer, int] | None:
    """Start the server of `/ha/v1`. Return it and its port; None when it is not configured."""
    network = config.network
    if network.ha_api_port < 0:
        return None
    if _DOOR not in sys.modules:
        # In a separate thread, because importing aiohttp would block the loop for too long.
        await asyncio.to_thread(importlib.import_module, _DOOR)
    from gantry.replication.haserver import HaServer

    server = HaServer(fencing, fencing.keys, clock, orders)
    return server, await server.start(network.bind, network.ha_api_port)
