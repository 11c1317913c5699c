"""The life cycle of a broker: made -> starting -> running -> stopping -> stopped.

`start` and `stop` have numbered steps.  The process may die between any two steps, and the next start finds a store
that it can open.  `stop` may be called after a start that failed or was cancelled; it skips what was not started.

`/healthz` answers from step 2 on, also during a long recovery, which lets the loop run between its steps.  `/readyz`
succeeds only while requests are served.

When the store fails (a failed fdatasync is final) or an essential task dies, `failure` is set, `on_failed` is called
once, and the process has to end with code 1.  From then on no producer gets SEND_OK, because only the next start can
find out what the disk really holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from gantry.append.admit import WriteGate
from gantry.broker import tables
from gantry.broker.assemble import Opened, assemble
from gantry.broker.jobs import Job
from gantry.broker.machine import Carried, Machine
from gantry.broker.member_lifecycle import MemberLifecycle, wait_for_disk
from gantry.broker.part_settings import HTTP_NONE, settings_of_folder, settled, store_settings
from gantry.broker.parts import Parts
from gantry.broker.role.master_role import GATE_TAIL, MasterRole
from gantry.broker.role.slave_role import SlaveRole
from gantry.broker.settings.config import BrokerConfig, Role
from gantry.broker.settings.ports import VIP_NONE, Addresses, Reserved
from gantry.broker.sinkhomes import keep_asking
from gantry.broker.stalled import GATE_STALLED
from gantry.errors import Refusal, StoreError
from gantry.schedule import wheel
from gantry.store.background import Background
from gantry.store.disk import FileLock
from gantry.store.opening import Opening, lock_folder
from gantry.store.store import Store
from gantry.transport.http import HealthServer
from gantry.transport.tasks import essential
from gantry.wire.codes import ResponseCode

log = logging.getLogger("gantry.broker")

GATE_STOPPING = "stopping"
_GOODBYE = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now: the broker stops")
_RECOVERY_STEPS = 256


class Broker:
    """One broker in this process; start() and stop() once each, in the same loop."""

    def __init__(
        self, config: BrokerConfig, on_failed: Callable[[], None] | None = None, machine: Machine | None = None
    ) -> None:
        self.failure: str | None = None  # why the process has to end
        self.starts_again = False  # after this broker another one has to start on the folder, in this process
        self.addresses: Addresses | None = None  # from step 1 of start() on
        self.http_port: int | None = None
        self.parts: Parts | None = None  # from step 4 of start() on
        self._config = config
        self._machine = machine or Machine()
        self.member_lifecycle = MemberLifecycle(config, self._machine)
        carried = self._machine.carrying.take() if self._machine.carrying is not None else None
        self._is_carried = carried is not None  # the former broker in this process left the store open
        self._on_failed = on_failed
        self._stage = "starting"
        self._is_running = False
        self._is_stopping = False
        self._is_settled = False  # all corrections of this start are done, so the store may be closed in order
        self._reservations: list[Reserved] = []
        self._http: HealthServer | None = None
        self._side_door: asyncio.Future[int] | None = None
        # The lock of the folder is held for every write there, also before the store is open and after it is closed.
        self._lock: FileLock | None = carried.lock if carried is not None else None
        self._background: Background | None = carried.background if carried is not None else None
        self._store: Store | None = carried.store if carried is not None else None
        self._jobs: list[Job] = []
        self._registering: asyncio.Task[None] | None = None
        self._asking_homes: asyncio.Task[None] | None = None
        self._activating: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to serve; ConfigError or StoreError when that is impossible."""
        # 1. Reserve the addresses: a taken port is found before a long recovery, and records contain the port.
        self.addresses = await self._reserve()
        # 2. The HTTP server, so that /healthz answers from here on.
        await self._open_side_door()
        # 3. The store, recovered step by step, or left open by the former broker in this process.
        opened = await self._open_store(self.addresses)
        #    In a group with a register: the role of this start.
        config, opened = await self.member_lifecycle.choose(opened)
        # 4. All other parts, connected, with metadata loaded; nothing runs yet.
        self.parts, self._jobs = assemble(config, opened, self._fail, self._restart)
        #    The coordinator may ask this member from here on.
        await self.member_lifecycle.take(config, opened, self.parts, self._restart, self._fail)
        #    Delayed messages and open transactions are read back from their queues.  A member of a group waits until
        #    its whole log is confirmed; a slave does not read them.
        await self._join(self.parts, self.addresses)
        # 5. The periodic jobs.
        self.parts.jobs.start(self._jobs)
        # 6. Requests are answered from here on.
        await self._listen(self.addresses)
        # 7. Register at all name servers at the same time; those that do not answer are tried again every 30 s.
        self.parts.registration.topic_changed("")
        self._registering = essential(self.parts.registration.run(), "registration at the name servers", self._fail)
        await self.parts.registration.caught_up()
        #    The homes of sinks in other groups are found through them.
        self._asking_homes = essential(keep_asking(config, self.parts), "asking the homes of sinks", self._fail)
        # 8. Ready.
        self.parts.serving.since_ms = self._machine.clock.now_ms()
        self._is_running, self._stage = True, "running"
        log.info("broker %s on %s", self._config.name, self.addresses.advertised)

    @property
    def settled_config(self) -> BrokerConfig:
        """The configuration with the ports that were chosen, for the next broker in this process."""
        if self.addresses is None:
            return self._config
        live = None if self.parts is None else self.parts.live.current
        return settled(self._config, self.addresses, (self.http_port, self.member_lifecycle.ha_api_port), live)

    async def stop(self, passed: Callable[[int], None] = lambda line: None) -> None:
        """Stop in order; after a failure as far as it is possible.

        passed: called with the number of each finished step; a test kills the process after each.
        """
        # 0. Hand over to another member first, so that there is always a master.
        if self._is_running and not self.starts_again and self.failure is None:
            await self.member_lifecycle.hand_over()
            self.starts_again = False  # whatever the result of the handover, no other broker starts
        elif self.starts_again and self._store is not None:
            await wait_for_disk(self._store)
        self._is_stopping = True
        # 1. Not ready any more.
        self._is_running, self._stage = False, "stopping"
        passed(1)
        if self.parts is not None:
            await self._stop_serving(self.parts, passed)
        # 8. The store: everything dispatched and durable, then the mark of an orderly stop.  A failed store, or a start
        # that was not completed, leaves the folder as after a crash.
        if self._store is not None and not self._leaves_open(self._store):
            self._store.close(self._is_settled)
            self._keep_delays(self._store)
        passed(8)
        # 9. The background threads, notes for the next start, the folder's lock, the HTTP server, the ports.
        if self._background is not None:
            self._background.close()
        await self.member_lifecycle.close(self._store)
        if self._lock is not None:
            self._lock.release()
        if self._http is not None and self._side_door is not None:
            await asyncio.wait({self._side_door})
            if not self._side_door.cancelled():
                self._side_door.exception()  # retrieved; the error of a cancelled start does not matter
            await self._http.close()
        for reservation in self._reservations:
            reservation.release()
        self._stage = "stopped"
        passed(9)

    def _leaves_open(self, store: Store) -> bool:
        """Leave the store open for the next broker in this process. Return False where that is not possible."""
        carrying, parts = self._machine.carrying, self.parts
        if carrying is None or parts is None or not self.starts_again or self.failure is not None:
            return False
        if parts.group is not None and parts.group.is_reshaping:
            return False  # the next start changes files that have to be closed before
        assert self._background is not None
        following = store.go_on()
        if following is None:
            return False
        carrying.leave(Carried(following, self._background, self._lock))
        self._store = self._background = self._lock = None
        return True

    async def _stop_serving(self, parts: Parts, passed: Callable[[int], None]) -> None:
        if self._asking_homes is not None:
            self._asking_homes.cancel()
            await asyncio.wait({self._asking_homes})
        # 2. Unregister, so that clients go elsewhere; not when the next broker in this process registers in a moment.
        if self._registering is not None:
            self._registering.cancel()
            await asyncio.wait({self._registering})
            if not self.starts_again:
                await parts.registration.unregister()
        passed(2)
        # 3. Refuse new messages; answer held pulls.
        parts.gate.shut(GATE_STOPPING, _GOODBYE)
        parts.pulls.held.release_all()
        parts.pops.polling.held.release_all()
        parts.router.stop()
        passed(3)
        # 4. Parked replies are sent when their messages are confirmed; after the time-out as "outcome unknown".
        await self._drain(parts)
        parts.acks.close()
        passed(4)
        # 5. Connections.
        if self._activating is not None:
            self._activating.cancel()
        await self.member_lifecycle.leave()
        if parts.group is not None:
            await parts.group.stop()
        await parts.server.close()
        await parts.client.close(is_urgent=self.starts_again)  # a silent name server must not delay the next broker
        passed(5)
        # 6. The periodic jobs.
        parts.jobs.stop()
        passed(6)
        # 7. Save changed metadata.
        with contextlib.suppress(StoreError):
            parts.topics.file.finish()
            parts.groups.file.finish()
            parts.offsets.file.finish()
            parts.locks.file.finish()
            parts.filters.file.finish()
            parts.modes.file.finish()
            parts.batches.decisions.file.finish()
        passed(7)

    def _keep_delays(self, store: Store) -> None:
        """Save the progress of delayed messages, also in RocketMQ's form; without it the next start reads the log."""
        if self.parts is None or not self.parts.activity.is_on:
            return
        if store.failed is not None or store.flushed.offset < store.written.offset:
            return
        with contextlib.suppress(StoreError):
            self.parts.delays.save_now()
            self.parts.pops.orderly.table.save_now()
            position = self.parts.delays.wheel_position()
            if position is not None:
                wheel.save(self._machine.disk, store.settings.root, position, self._machine.clock.now_ms())

    async def _drain(self, parts: Parts) -> None:
        drained = asyncio.Event()
        parts.store.confirmed.listen(lambda _: None if len(parts.acks) else drained.set())
        if len(parts.acks) and self.failure is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._config.messages.ack_wait_s):
                    await drained.wait()

    async def _open_side_door(self) -> None:
        network = self._config.network
        if network.http_port == HTTP_NONE:
            return
        self._http = HealthServer(
            network.bind,
            network.http_port,
            self._load_metrics,
            self._health,
            self._readiness,
            packages=("prometheus_client",),
        )
        # Shielded: a cancelled start would leave a socket open.
        self._side_door = asyncio.ensure_future(self._http.start())
        self.http_port = await asyncio.shield(self._side_door)

    def _load_metrics(self) -> Callable[[], Awaitable[bytes]]:
        """Load the table of metrics and its library, which takes 60 ms; called in the HTTP server's loading thread."""
        from gantry.broker.metrics.exposition import Metrics

        return Metrics(lambda: self.parts if self.parts is not None and self.parts.serving.since_ms else None).text

    async def _open_store(self, addresses: Addresses) -> Opened:
        machine = self._machine
        settings = store_settings(self._config, addresses)
        if self._is_carried:
            await self.member_lifecycle.prepare(settings, is_carried=True)
            assert self._store is not None and self._background is not None
            return Opened(self._store, machine, self._background, addresses)
        self._background = machine.background(machine.disk)
        self._lock = lock_folder(machine.disk, settings.root)
        settings = settings_of_folder(self._config, machine.disk, settings)
        await self.member_lifecycle.prepare(settings)
        opening = Opening(settings, machine.disk, machine.steady, self._background, is_locked=True)
        for progress in opening.steps():
            self._stage = f"recovering: {progress.stage} {progress.at} of {progress.end}"
            await asyncio.sleep(0)
        assert opening.store is not None
        self._store = opening.store
        return Opened(self._store, machine, self._background, addresses)

    async def _reserve(self) -> Addresses:
        network, reserve = self._config.network, self._machine.reserve
        addresses = await reserve(network, self._reservations)
        if not self._config.replication.secret_file or self._config.role is Role.SLAVE:
            return addresses
        wanted = network.ha_port  # with a register every member reserves one, because its role is decided later
        if wanted < 0:
            wanted = addresses.port + 1 if network.port else 0
        taken: list[Reserved] = []
        try:
            links = await reserve(replace(network, port=wanted, vip_port=VIP_NONE), taken)
        finally:
            self._reservations += taken
        return replace(addresses, ha_port=links.port)

    async def _join(self, parts: Parts, addresses: Addresses) -> None:
        """Start the member's role, and the work of a master now or when its log is confirmed."""
        group = parts.group
        if isinstance(group, SlaveRole):
            group.start(self._fail)
            self._is_settled = True
            return
        # Before they are read back it is unknown which messages are still needed, so retention deletes nothing.
        parts.store.retention.owe(lambda: None if parts.activity.has_read_back else 0)
        if isinstance(group, MasterRole):
            assert addresses.ha_port is not None
            await group.start(addresses.bind, addresses.ha_port)
            self._reservations[-1].release()
            if not group.has_confirmed_tail:
                remark = f"service not available now: {group.why_not()}"
                parts.gate.shut(GATE_TAIL, Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark))
                group.on_tail(self._activate_soon)
                return
        await self._activate(parts)

    def _activate_soon(self) -> None:
        assert self.parts is not None
        self._activating = asyncio.ensure_future(self._activate(self.parts))
        self._activating.add_done_callback(self._activated)

    def _activated(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._fail(f"transactions and delays could not be read back: {task.exception()!r}")

    async def _activate(self, parts: Parts) -> None:
        if self.member_lifecycle.has_register:
            # Offsets beyond the end of a new master's log are cut; its whole log is dispatched by now.
            tables.bound(parts.store, parts.offsets)
        await self._recover_delays(parts)
        await self._read_back(parts.pops.recover(parts.delays.book.leases), "popped messages")
        await self._read_back(parts.transactions.recover(), "transactions")
        parts.activity.begin()
        self._is_settled = True
        parts.gate.reopen(GATE_TAIL)
        if self._is_running:
            self._stage = "running"

    async def _recover_delays(self, parts: Parts) -> None:
        root, disk = parts.store.settings.root, self._machine.disk
        await self._read_back(parts.delays.recover(wheel.load(disk, root)), "delayed messages")

        def save() -> None:
            parts.delays.save_now()
            if parts.delays.took_over:
                # From here on RocketMQ's timer wheel is outdated, and GantryMQ's file counts.
                wheel.forget(disk, root)

        if parts.delays.took_over or parts.delays.was_ahead:
            # Before the log grows, because the next start could not detect it any more.
            parts.store.save_corrected(save)

    async def _read_back(self, steps: Iterable[object], what: str) -> None:
        for number, _ in enumerate(steps):
            if number % _RECOVERY_STEPS == 0:
                self._stage = f"recovering: {what}"
                await asyncio.sleep(0)

    async def _listen(self, addresses: Addresses) -> None:
        assert self.parts is not None
        ports = [addresses.port] if addresses.vip_port is None else [addresses.port, addresses.vip_port]
        for port, reservation in zip(ports, self._reservations, strict=False):
            await self.parts.server.start(addresses.bind, port)
            reservation.release()

    def _health(self) -> tuple[bool, str]:
        return self.failure is None, self.failure or self._stage

    def _readiness(self) -> tuple[bool, str]:
        gate = self.parts.gate if self.parts is not None else WriteGate()
        shut = f"; takes no messages: {', '.join(gate.reasons)}" if gate.reasons else ""
        aside = self.member_lifecycle.why_not_ready() if self._is_running else ""
        is_ready = self._is_running and self.failure is None and not aside and GATE_STALLED not in gate.reasons
        return is_ready, self._health()[1] + (f"; {aside}" if aside else "") + shut

    def _restart(self, why: str) -> None:
        """Stop, and let another broker start on the same folder; no effect while it stops already."""
        if self.starts_again or self.failure is not None or self._is_stopping:
            return
        self.starts_again = True
        log.warning("%s; the broker starts again", why)
        if self._on_failed is not None:
            self._on_failed()

    def _fail(self, why: str) -> None:
        """Note that the process has to end, and why; only the first reason counts."""
        if self.failure is not None:
            return
        self.failure = why
        log.critical("%s; the process ends", why)
        if self.parts is not None:
            self.parts.gate.shut(
                "failed", Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {why}")
            )
        if self._on_failed is not None:
            self._on_failed()
