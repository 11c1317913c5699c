"""Carries out the orders of `/ha/v1`, except seals: implements `replication.haserver.OrderHandler`.

    nudge       read the register now
    handover    make another member the master (`handover`)
    cordon      refuse messages and serve readers; returns how much is undelivered and unreplicated
    config      change the hot keys, and return which of the others need a restart
    clone       remove the log and copy everything again, as another disk; only for a member that is not in sync
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from gantry.broker.group.handover import Handover
from gantry.broker.role.master_role import MasterRole
from gantry.broker.role.slave_role import SlaveRole
from gantry.broker.settings.config import HOT
from gantry.broker.settings.keyrules import check as check_config
from gantry.broker.settings.sources import replaced
from gantry.errors import ConfigError
from gantry.model import documents
from gantry.model.topic import PERM_READ, PERM_READ_WRITE
from gantry.replication import haapi
from gantry.replication.epochs import EpochTable
from gantry.replication.haapi import Answer, refuse
from gantry.replication.handshake import Step
from gantry.replication.member_files import Plan
from gantry.replication.record import Phase
from gantry.replication.register import RegisterError
from gantry.store.jobs import wait_until_done

if TYPE_CHECKING:
    from gantry.broker.group.roles import Ground
    from gantry.broker.parts import Parts
    from gantry.broker.role.register_watcher import RegisterWatcher
    from gantry.replication.register import Register

_DEADLINE_MS_MAX = 60_000
_DEADLINE_MS = 10_000
_KEYS_A_TURN = 64


class Orders:
    """The orders to one member; loop thread only."""

    def __init__(
        self,
        parts: Parts,
        role: MasterRole | SlaveRole,
        ground: Ground,
        watcher: RegisterWatcher,
        register: Register,
        restart: Callable[[str], None],
    ) -> None:
        self._parts = parts
        self._ground = ground
        self._watcher = watcher
        self._register = register
        self._role = role
        self.handover = (
            Handover(role, watcher, parts.gate, parts.clock, restart) if isinstance(role, MasterRole) else None
        )

    async def carry_out(self, call: str, asked: documents.Document) -> Answer | None:
        """Carry out one of `haapi.ORDERS`; errors are those of `replication.haserver.OrderHandler`."""
        match call:
            case haapi.NUDGE:
                self._watcher.hurry()
                return None
            case haapi.HANDOVER:
                return await self.hand_over(asked)
            case haapi.CORDON:
                return await self.cordon(asked)
            case haapi.CONFIG:
                return await self.configure(asked)
            case _:
                return await self.clone()

    async def hand_over(self, asked: documents.Document) -> Answer | None:
        """Make another member the master. None: done; else the refusal."""
        target = documents.integer(asked, "target", -1)
        deadline_ms = documents.integer(asked, "deadlineMs", _DEADLINE_MS)
        if not 0 < deadline_ms <= _DEADLINE_MS_MAX:
            return refuse(400, f"deadlineMs {deadline_ms}: expected 1 to {_DEADLINE_MS_MAX}")
        if self.handover is None:
            return refuse(409, "this member does not lead")
        # The next master would wait for it as a slave: a full disk stores nothing, and a slow one is late.
        is_leaving = bool(self._parts.store.why_full) or self.handover.is_disk_late
        return await self.handover.to([target], deadline_ms / 1000, is_leaving)

    async def cordon(self, asked: documents.Document) -> Answer | None:
        """Refuse messages, or accept them again ({on: false}). Return what is undelivered and unreplicated."""
        is_on = documents.boolean(asked, "on", True)
        permission = PERM_READ if is_on else PERM_READ_WRITE
        refusal = self._parts.live.update({"permission": str(permission)}, self._parts.clock.now_ms())
        if refusal is not None:
            return refuse(409, refusal.remark)
        return Answer(200, {"cordoned": is_on, **await self._left()})

    async def _left(self) -> Mapping[str, object]:
        """Return the undelivered messages by consumer group, and the unreplicated bytes."""
        parts = self._parts
        behind: dict[str, int] = {}
        for number, key in enumerate(parts.offsets.keys()):
            if number % _KEYS_A_TURN == 0:
                await asyncio.sleep(0)
            topic, _, consumers = key.partition("@")
            queues = parts.offsets.value(key) or {}
            lag = sum(
                max(0, parts.store.next_queue_offset(topic, int(queue_id)) - offset)
                for queue_id, offset in queues.items()
            )
            if lag:
                behind[consumers] = behind.get(consumers, 0) + lag
        role = self._role.metrics()
        is_master = role.in_sync is not None
        lags = [lag for slave, lag in role.lag_bytes.items() if is_master and role.connected[slave]]
        return {"undelivered": behind, "unreplicatedBytes": max(lags, default=0)}

    async def configure(self, asked: documents.Document) -> Answer | None:
        """Apply the hot keys of {keys: {...}}. Return which were applied, and which need a restart."""
        keys = documents.texts(asked, "keys")
        live = self._parts.live
        try:
            check_config(replaced(live.current, keys, "request"))
        except ConfigError as error:
            return refuse(400, str(error))
        hot = {key: value for key, value in keys.items() if key in HOT}
        refusal = live.update(hot, self._parts.clock.now_ms()) if hot else None
        if refusal is not None:
            return refuse(400, refusal.remark)
        # Keys that are read at a start only, with a value that differs from the present one.
        cold = [
            key
            for key, value in keys.items()
            if key not in HOT and replaced(live.current, {key: value}, "request") != live.current
        ]
        return Answer(200, {"applied": sorted(hot), "needsRestart": sorted(cold)})

    async def clone(self) -> Answer | None:
        """Begin again as another disk; refused when the register counts on this one."""
        group, member = self._role, self._ground.member
        if not isinstance(group, SlaveRole):
            return refuse(409, "this member leads; nothing was thrown away")
        if group.is_reshaping:
            return refuse(409, "its log is about to be changed already")
        # It must not join the set while the register is read, so it stops following.
        group.is_reshaping = True
        group.cut_off("it may be cloned again")
        refusal = None
        try:
            refusal = await self._why_not_clone()
        finally:
            group.is_reshaping = False
        if refusal is not None:
            return refusal
        uid = f"{self._ground.machine.chance.getrandbits(128):032x}"
        why = f"the log of {member.me.member} is thrown away, and everything is copied again"
        await wait_until_done(partial(group.plan, Plan(Step.BEGIN, 0, EpochTable(), uid), why))
        return Answer(200, {"storeUID": uid})

    async def _why_not_clone(self) -> Answer | None:
        member = self._ground.member
        try:
            seen = await self._register.read()
        except RegisterError as error:
            return refuse(503, f"it is unknown whether this member is needed: {error}")
        if seen is None:
            return refuse(409, "the group has no register; nothing was thrown away")
        if seen.record.phase in (Phase.BOOTSTRAPPING, Phase.RECOVERING):
            return refuse(409, f"the group is {seen.record.phase.value}; nothing was thrown away")
        if any(each.ordinal == member.place for each in seen.record.in_sync):
            return refuse(409, f"{member.me.member} is in sync; nothing was thrown away")
        return None
