"""Registers this broker and its topics at every name server.

A whole registration (REGISTER_BROKER, 103) carries the topic table, encoded in slices.

A topic that was created or changed is registered by itself (REGISTER_TOPIC_IN_NAMESRV, 217), so it costs the same
however many there are.  A name server that does not know this request (RocketMQ's before 5.0) gets a whole registration
instead.  Only a master does so: a name server takes no topics from a slave.  RocketMQ: enableSingleTopicRegister.  Its
other way, a REGISTER_BROKER with the changed topics only, is a whole one for a name server that deletes what a
registration lacks.

Each name server has a worker of its own (`registration_worker`), so one that does not answer delays no other.  Failures
are logged once a minute.

In a group with failover a registration carries the epoch that the broker leads or follows, as the state version of its
topic table: name servers, Apache's too, order masters by it.  It is 0 for a static broker.

A registration always has at least two topics, because every table has the system topics.  A name server refuses a first
registration with exactly one (RocketMQ: RouteInfoManager.registerBroker treats it as incremental).
"""

from __future__ import annotations

import asyncio
from functools import partial

from gantry.broker.complaints import Complaints
from gantry.broker.permitted_topics import TopicTable
from gantry.broker.registration_body import BrokerIdentity, RegistrationSource
from gantry.broker.registration_worker import Invoker, RegistrationContext, RegistrationWorker


class RegistrationTask:
    """Keeps the name servers informed; run() is a task of the broker."""

    def __init__(
        self,
        client: Invoker,
        name_servers: tuple[str, ...],
        identity: BrokerIdentity,
        topics: TopicTable,
        complaints: Complaints,
        period_s: float = 30.0,
        timeout_s: float = 3.0,
    ) -> None:
        self.complaints = complaints
        self._source = RegistrationSource(identity, topics)
        self._context = RegistrationContext(client, self._source, complaints, period_s, timeout_s)
        self._workers = {address: RegistrationWorker(address, self._context) for address in name_servers}
        self._changes = 0

    @property
    def is_registered(self) -> dict[str, bool]:
        """By name server: whether it has taken the last registration, and the connection is still there."""
        return {address: worker.is_registered for address, worker in self._workers.items()}

    @property
    def master_address(self) -> str:
        """The address of the group's master for clients, as a name server told this slave; empty when none did."""
        return self._context.master_address

    @property
    def master_ha(self) -> str:
        """The address of the group's master for slaves, as a name server told this slave; empty when none did."""
        return self._context.master_ha

    def topic_changed(self, name: str) -> None:
        """Register a topic now that was created or changed, or the whole table for one that was deleted."""
        if self._source.get(name) is None:
            self.changed()
            return
        self._changes += 1
        self._source.note_change()
        for worker in self._workers.values():
            worker.register_topic_soon(name)

    def changed(self) -> None:
        """Register the whole table now."""
        self._changes += 1
        self._source.note_change()
        for worker in self._workers.values():
            worker.register_whole_soon()

    def stand_as(self, broker_id: int, epoch: int) -> None:
        """Register now with another broker id and epoch."""
        self._source.stand_as(broker_id, epoch)
        self.changed()

    def connection_lost(self, address: str) -> None:
        """Note that the connection to a name server ended, and with it the registration."""
        if address in self._workers:
            self._workers[address].note_lost_connection()

    async def run(self) -> None:
        """Keep all name servers informed, until cancelled."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        tasks = [asyncio.ensure_future(worker.run()) for worker in self._workers.values()]
        for task in tasks:
            task.add_done_callback(partial(_tell_failure, ended))
        try:
            await ended
        # Not a TaskGroup: it awaits also when its loop is gone and nobody goes on with it.
        except (asyncio.CancelledError, Exception):
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def caught_up(self) -> None:
        """Return when clients can find what has changed so far, or the time-out has passed.

        A name server that did not take the last whole registration is not waited for.
        """
        wanted = self._changes
        try:
            async with asyncio.timeout(self._context.timeout_s), self._context.round_over:
                await self._context.round_over.wait_for(
                    lambda: all(one.has_failed or one.changes_sent >= wanted for one in self._workers.values())
                )
        except TimeoutError:
            pass

    async def register_once(self) -> None:
        """Register the whole table once at all name servers, at the same time."""
        await asyncio.gather(*[worker.register_whole() for worker in self._workers.values()])

    async def unregister(self) -> None:
        """Unregister at the name servers, so that clients go elsewhere at once."""
        await asyncio.gather(*[worker.unregister() for worker in self._workers.values()])


def _tell_failure(ended: asyncio.Future[None], task: asyncio.Task[None]) -> None:
    if not task.cancelled() and not ended.done() and (error := task.exception()) is not None:
        ended.set_exception(error)
