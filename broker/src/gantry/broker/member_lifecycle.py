"""A member of a group, from before its store is open until after it is closed.

    prepare     the folder is a member's: a planned change of the log is carried out, how far it has to reach is noted
    choose      the store is open: has it lost anything; with a register, which part this life has (`startup_role`)
    take        everything is built: the register watcher (`register_watcher`) begins, the door of `/ha/v1` opens
    hand_over   it was asked to stop, and leads: another member shall lead before anybody misses this one
    leave       the register watcher ends and the door closes
    close       nobody writes to the disk any more: how this life ended is noted

A broker without replication has none of this, and a static pair has no register watcher.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gantry.broker.group.fencing import Fencing, open_door
from gantry.broker.group.orders import Orders
from gantry.broker.group.roles import Ground, make_watcher
from gantry.broker.role import mastership, membership, reshaping, startup_role
from gantry.broker.role.promise_writer import PromiseWriter
from gantry.broker.role.register_news import RegisterNews
from gantry.broker.role.register_reader import RegisterReader
from gantry.errors import StoreError, SyncFailedError
from gantry.replication.term_promise import Beginning, Ending
from gantry.store.reserve import Reserve
from gantry.store.settings import Flush

if TYPE_CHECKING:
    from gantry.broker.assemble import Opened
    from gantry.broker.machine import Machine
    from gantry.broker.parts import Parts
    from gantry.broker.role.group_role import GroupRole
    from gantry.broker.role.membership import Membership
    from gantry.broker.role.register_watcher import RegisterWatcher
    from gantry.broker.settings.config import BrokerConfig
    from gantry.replication.haserver import HaServer
    from gantry.replication.losses import Losses
    from gantry.replication.register import Register
    from gantry.store.settings import StoreSettings
    from gantry.store.store import Store

log = logging.getLogger("gantry.broker")


class MemberLifecycle:
    """One broker's, for one life."""

    def __init__(self, config: BrokerConfig, machine: Machine) -> None:
        self.fencing: Fencing | None = None  # of a member of a group
        self.watcher: RegisterWatcher | None = None  # of one whose group has a register
        self.orders: Orders | None = None
        self.ha_api_port: int | None = None
        self._config = config
        self._machine = machine
        self._member: Membership | None = None
        self._role: GroupRole | None = None
        self._promise_writer: PromiseWriter | None = None
        self._is_open = False  # its store is
        self._is_carried = False  # it was before this life began
        self._losses: Losses | None = None
        self._register: Register | None = None
        self._door: HaServer | None = None

    @property
    def has_register(self) -> bool:
        """Whether who leads stands in a register."""
        return self._member is not None and self._member.has_register

    async def prepare(self, settings: StoreSettings, is_carried: bool = False) -> None:
        """The store is about to be opened; is_carried: it is open, as the broker before this one left it."""
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
        """The configuration of this life, and what everything is built upon."""
        member, machine, store = self._member, self._machine, opened.store
        if member is None:
            store.confirm_locally()
            return self._config, opened
        is_sync = store.settings.flush is Flush.SYNC
        if not self._is_carried:
            beginning = Beginning(machine.boot_id(), is_sync, store.written.offset, 0)
            store.in_reserve(partial(membership.begin, member, machine.disk, store.settings.root, beginning))
        self._is_open = True
        config, seen, reader = self._config, None, None
        if member.has_register:
            self._register = machine.register(config.replication, machine.disk)
            reader = RegisterReader(self._register, member, store)
            part = await startup_role.choose(config, reader, store, machine.disk)
            config, seen = part.config, part.seen
        self._promise_writer = PromiseWriter(member, machine.disk, store.settings.root, opened.background.housekeeper)
        news = RegisterNews(machine.clock)
        held = mastership.begin(config, member, store, machine, seen, news)
        ground = Ground(machine, opened.background, member, self._promise_writer, held, news, self._losses, reader)
        return config, replace(opened, ground=ground)

    async def take(
        self,
        config: BrokerConfig,
        opened: Opened,
        parts: Parts,
        restart: Callable[[str], None],
        fail: Callable[[str], None],
    ) -> None:
        """Answer anyone who watches over the group, and look at its register."""
        ground, role = opened.ground, parts.group
        if ground is None or role is None:
            return
        self._role = role
        self.fencing = Fencing(ground.member, config.name, role, ground.promise_writer, parts)
        if ground.reader is not None:
            self.watcher = make_watcher(config, ground, ground.reader, parts, restart)
            self.orders = Orders(parts, role, ground, self.watcher, ground.reader.register, restart)
            self.watcher.start(fail)
        found = await open_door(config, self.fencing, self._machine.clock, self.orders)
        if found is not None:
            self._door, self.ha_api_port = found

    def why_not_ready(self) -> str:
        """Of a member whose group has a register: why clients should go elsewhere; empty: they need not."""
        return "" if self._role is None or not self.has_register else self._role.why_not_ready()

    async def hand_over(self) -> None:
        """If this member leads; tried once, within `replication.handover_s`, and going without it if that fails."""
        within_s = self._config.replication.handover_s
        if self.orders is None or self.orders.handover is None or within_s <= 0:
            return
        target = self.orders.handover.heir()
        if target is not None:
            refusal = await self.orders.handover.to(target, within_s, is_leaving=True)
            said = "done" if refusal is None else refusal.document.get("error")
            log.warning("handing the group over to member %d before this one stops: %s", target, said)

    async def leave(self) -> None:
        """Nobody is answered, and nothing is looked at any more."""
        if self.watcher is not None:
            await self.watcher.stop()
        if self._door is not None:
            await self._door.close()
        if self._promise_writer is not None:
            self._promise_writer.end()

    async def close(self, store: Store | None) -> None:
        """What the next start has to know about this end; nothing writes to the disk any more."""
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
