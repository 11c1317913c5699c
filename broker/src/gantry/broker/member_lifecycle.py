"""The life cycle of a group's member, from before its store is open until after it is closed.

    prepare     before the store is opened: carry out a planned change of the log, note how far the log has to reach
    choose      the store is open: count a loss of messages; with a register, choose the role (`member_register`)
    take        all parts are built: start the register watcher (`register_watcher`) and the server of `/ha/v1`
    hand_over   before a master stops: let another member lead
    leave       stop the register watcher and the server of `/ha/v1`
    close       after the last write to the disk: note how the process ended

A broker without replication does none of this, and a static pair has no register watcher.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gantry.broker.group.fencing import Fencing, open_door
from gantry.broker.group.orders import Orders
from gantry.broker.group.roles import Ground, make_watcher
from gantry.broker.role import mastership, membership, reshaping
from gantry.broker.role.member_register import MemberRegister
from gantry.broker.role.promise_writer import PromiseWriter
from gantry.errors import StoreError, SyncFailedError
from gantry.replication.register_writer import RegisterWriter
from gantry.replication.term_promise import Beginning, Ending
from gantry.replication.timers import derive_serving_waits
from gantry.store.reserve import Reserve
from gantry.store.settings import Flush

if TYPE_CHECKING:
    from gantry.broker.assemble import Opened
    from gantry.broker.machine import Machine
    from gantry.broker.parts import Parts
    from gantry.broker.role.master_role import MasterRole
    from gantry.broker.role.membership import Membership
    from gantry.broker.role.register_watcher import RegisterWatcher
    from gantry.broker.role.slave_role import SlaveRole
    from gantry.broker.settings.config import BrokerConfig
    from gantry.replication.haserver import HaServer
    from gantry.replication.losses import Losses
    from gantry.replication.register import Register
    from gantry.store.settings import StoreSettings
    from gantry.store.store import Store

log = logging.getLogger("gantry.broker")

_LOOK_S = 0.005


async def wait_for_disk(store: Store) -> None:
    """Wait until the disk has what is written so far, as long as it hangs.

    A life that is followed by another one leaves its store open, and the loop stands still until the disk has what is
    missing.  While the disk hangs, the member answers clients and the coordinator instead.
    """
    end, jobs = store.written.offset, store.jobs_ended
    while True:
        if store.is_quiet(end, jobs):
            return
        await asyncio.sleep(_LOOK_S)


class MemberLifecycle:
    """The member's part of one broker's life cycle."""

    def __init__(self, config: BrokerConfig, machine: Machine) -> None:
        self.fencing: Fencing | None = None  # of a member of a group
        self.watcher: RegisterWatcher | None = None  # of one whose group has a register
        self.orders: Orders | None = None
        self.ha_api_port: int | None = None
        self._config = config
        self._machine = machine
        self._member: Membership | None = None
        self._role: MasterRole | SlaveRole | None = None
        self._promise_writer: PromiseWriter | None = None
        self._is_open = False  # the store is open
        self._is_carried = False  # the former broker in this process left the store open
        self._losses: Losses | None = None
        self._register: Register | None = None
        self._door: HaServer | None = None

    @property
    def has_register(self) -> bool:
        """Whether the group has a register."""
        return self._member is not None and self._member.has_register

    async def prepare(self, settings: StoreSettings, is_carried: bool = False) -> None:
        """Prepare the folder before the store is opened. is_carried: the former broker left it open."""
        machine, root = self._machine, settings.root
        if not self._config.replication.secret_file:
            return
        self._is_carried = is_carried
        if is_carried:
            self._losses = reshaping.known(machine.disk, root)
            self._join(root)
            return
        self._losses = await reshaping.carry_out(self._config.role, machine, root, settings.segment_bytes)
        member = self._join(root)
        Reserve(machine.disk, settings).carry_out(partial(membership.expect, member, machine.disk, root))

    def _join(self, root: str) -> Membership:
        machine, carrying = self._machine, self._machine.carrying
        kept = None if carrying is None else carrying.keys
        member = membership.join(self._config, machine.disk, root, machine.chance, machine.process, kept)
        if carrying is not None:
            carrying.keys = member.keys
        self._member = member
        return member

    async def choose(self, opened: Opened) -> tuple[BrokerConfig, Opened]:
        """Return the configuration with the role of this start, and the input of all parts."""
        member, machine, store = self._member, self._machine, opened.store
        if member is None:
            store.confirm_locally()
            return self._config, opened
        is_sync = store.settings.flush is Flush.SYNC
        if not self._is_carried:
            beginning = Beginning(machine.boot_id(), is_sync, store.written.offset, 0)
            store.in_reserve(partial(membership.begin, member, machine.disk, store.settings.root, beginning))
        self._is_open = True
        config, seen, register = self._config, None, None
        if member.has_register:
            self._register = machine.register(config.replication, machine.disk)
            again_s = derive_serving_waits(config.replication.renew_every_s).again_s
            writer = RegisterWriter(self._register, machine.clock, again_s)
            register = MemberRegister(writer, member, store, machine.clock)
            config, seen = await register.choose(config, machine.disk)
        self._promise_writer = PromiseWriter(member, machine.disk, store.settings.root, opened.background.housekeeper)
        held = mastership.begin(config, member, store, machine, register, seen)
        ground = Ground(machine, opened.background, member, self._promise_writer, held, self._losses, register)
        return config, replace(opened, ground=ground)

    async def take(
        self,
        config: BrokerConfig,
        opened: Opened,
        parts: Parts,
        restart: Callable[[str], None],
        fail: Callable[[str], None],
    ) -> None:
        """Start to answer the coordinator, and to watch the group's register."""
        ground, role = opened.ground, parts.group
        if ground is None or role is None:
            return
        self._role = role
        self.fencing = Fencing(ground.member, config.name, role, ground.promise_writer, parts)
        if ground.register is not None:
            self.watcher = make_watcher(config, ground, ground.register, parts, restart)
            self.orders = Orders(parts, role, ground, self.watcher, ground.register.writer.register, restart)
            self.watcher.start(fail)
        found = await open_door(config, self.fencing, self._machine.clock, self.orders)
        if found is not None:
            self._door, self.ha_api_port = found

    def why_not_ready(self) -> str:
        """Return why clients should use another member, in a group with a register; empty: they need not."""
        return "" if self._role is None or not self.has_register else self._role.why_not_ready()

    async def hand_over(self) -> None:
        """Hand over if this member is the master; tried once, within `replication.handover_s`."""
        within_s = self._config.replication.handover_s
        if self.orders is None or self.orders.handover is None or within_s <= 0:
            return
        targets = self.orders.handover.heirs()
        if targets:
            refusal = await self.orders.handover.to(targets, within_s, is_leaving=True)
            said = "done" if refusal is None else refusal.document.get("error")
            log.warning("handing the group over before this member stops: %s", said)

    async def leave(self) -> None:
        """Stop the watcher, the server of `/ha/v1` and the writer of promises."""
        if self.watcher is not None:
            await self.watcher.stop()
        if self._door is not None:
            await self._door.close()
        if self._promise_writer is not None:
            self._promise_writer.end()

    async def close(self, store: Store | None) -> None:
        """Note for the next start how this process ended; nothing else writes to the disk any more."""
        if self._register is not None:
            await self._register.close()
        member = self._member
        if store is None or member is None or not self._is_open:
            return
        is_clean = store.failed is None and store.flushed.offset >= store.written.offset
        if is_clean or isinstance(store.failed, SyncFailedError):
            ending = Ending.CLEAN if is_clean else Ending.SYNC_FAILED
            with contextlib.suppress(StoreError):
                membership.end(member, self._machine.disk, store.settings.root, ending)
