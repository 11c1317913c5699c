"""Makes what decides where groups begin and go on: offsets from clients, begins in new queues, and queue locks.

First offsets and granted locks are durable before they are answered, in a group at the in-sync slaves too.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gantry.broker.elsewhere import ProgressElsewhere
from gantry.broker.settings.config import BrokerConfig, Role
from gantry.broker.topicroutes import TopicRoutes
from gantry.consume.locks import QueueLocks
from gantry.metadata.commits import GroupCommits
from gantry.metadata.savedtogether import SavedTogether
from gantry.metadata.starts import GroupStarts

if TYPE_CHECKING:
    from gantry.broker.complaints import Complaints
    from gantry.broker.durably import Durably
    from gantry.broker.registration_worker import Invoker
    from gantry.clock import Clock
    from gantry.metadata.offsets import Offsets
    from gantry.metadata.state import State
    from gantry.metadata.topics import Topics
    from gantry.store.store import Store


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """The parts; `firsts` and `grants` are the saves of first offsets and of granted locks, `owners` those that a slave
    makes of all locks.
    """

    commits: GroupCommits
    firsts: SavedTogether
    starts: GroupStarts
    locks: QueueLocks
    grants: SavedTogether
    owners: SavedTogether
    routes: TopicRoutes


def make_progress(
    config: BrokerConfig,
    store: Store,
    tables: tuple[Topics, Offsets, State],
    durably: Durably,
    client: Invoker,
    watch: tuple[Complaints, Clock],
) -> GroupProgress:
    """Return the parts of a broker; of `tables` the last is the file of queue locks."""
    (topics, offsets, locks_file), (complaints, clock) = tables, watch
    routes = TopicRoutes(client, config.name_servers, config.name, topics, clock, complaints)
    elsewhere = ProgressElsewhere(client, routes, config.name, clock)
    locks = QueueLocks(locks_file, clock.monotonic(), config.clients.queue_lock_s, config.clients.queue_locks_max)
    commits = GroupCommits(offsets, store, knows_end=config.role is not Role.SLAVE)

    async def save_offsets() -> bool:
        number = offsets.firsts.count
        await offsets.saved()
        is_kept = await durably.caught_up()
        if is_kept:
            offsets.firsts.saved(number)
        return is_kept

    async def save_locks() -> bool:
        for _ in locks.saving(always=True):
            await asyncio.sleep(0)
        return await durably.caught_up()

    firsts = SavedTogether(lambda: offsets.firsts.count, save_offsets)
    commits.on_first = firsts.soon
    return GroupProgress(
        commits,
        firsts,
        GroupStarts(offsets, topics, store, config.store.warm_bytes, elsewhere.began_ms),
        locks,
        SavedTogether(lambda: locks.counts.granted, save_locks),
        SavedTogether(lambda: locks.changes, save_locks),
        routes,
    )
