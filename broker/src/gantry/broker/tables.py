"""The tables of metadata at a start: loads their files, and corrects them to agree with the store.

Tables are saved one after the other and after the log, so a crash may come in between.  Corrections are on the disk
before the broker serves, because the log grows while it serves and the next start could not detect the fault any more.
The same corrections apply after a crash and after an orderly stop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from gantry.broker.complaints import Complaints
from gantry.broker.durably import Durably
from gantry.broker.settings.config import BrokerConfig, Role
from gantry.clock import Clock
from gantry.errors import StoreError
from gantry.metadata.groups import Groups, GroupSettings
from gantry.metadata.offsets import Offsets
from gantry.metadata.topics import Topics, TopicSettings
from gantry.store import filenames
from gantry.store.background import Worker
from gantry.store.disk import Disk
from gantry.store.statefile import JsonState
from gantry.store.store import Store

log = logging.getLogger("gantry.broker")


def states(
    root: str, disk: Disk, housekeeper: Worker, complaints: Complaints, durably: Durably
) -> Callable[[str], JsonState]:
    """Return the function that makes the file of a table, given its name under <root>/config."""

    def failed(path: str, error: StoreError) -> None:
        complaints.say(path, f"{path} could not be saved and is tried again: {error}")

    def damaged(problem: str) -> None:
        log.warning("%s; its backup is used, and what changed last may be missing", problem)

    def state(name: str) -> JsonState:
        made = JsonState(filenames.config(root, name), disk, housekeeper, failed, durably.look, damaged)
        durably.watch(made)
        return made

    return state


def metadata(
    config: BrokerConfig, clock: Clock, wall_clock: Clock, state: Callable[[str], JsonState]
) -> tuple[Topics, Groups, Offsets]:
    """Load topics, consumer groups and consumer offsets, the three tables that RocketMQ has as well.

    Since when groups read is told to other brokers, so it is a time of the wall clock.
    """
    settings = TopicSettings(
        broker_name=config.name,
        cluster_name=config.cluster,
        auto_create=config.topics.auto_create,
        template_queues=config.topics.template_queues,
        topics_max=config.topics.topics_max,
    )
    return (
        Topics(state("topics.json"), clock, settings),
        Groups(
            state("subscriptionGroup.json"),
            clock,
            GroupSettings(config.topics.auto_create_groups, config.topics.groups_max),
        ),
        Offsets(state("consumerOffset.json"), wall_clock),
    )


def agree(store: Store, topics: Topics, offsets: Offsets, role: Role) -> None:
    """Correct topics and offsets after the store was opened, and save the corrections."""
    adopted = topics.adopt(store.queues())
    for name in adopted:
        log.warning("topic %s has messages and was not saved before the last stop; it is created again", name)
    former = frozenset[str]() if offsets.is_numbered else frozenset(store.generations.all())
    late = offsets.catch_up(store.generations.all(), lambda name: topics.get(name) is not None)
    for name in late:
        log.warning("topic %s was deleted just before the last stop; its offsets are removed now", name)
    # A slave's offsets are the master's, whose log is longer; they are bounded when it becomes the master.
    beyond = role is not Role.SLAVE and _set_back(store, offsets, former)
    # Saved last: the tables in memory are right even if the disk has no room.
    if adopted:
        _save(store, topics.file.save_now)
    if beyond or late:
        _save(store, offsets.file.save_now)


def bound(store: Store, offsets: Offsets) -> None:
    """Set offsets beyond the end of their queue back, and begins of groups beyond the end of the log, on the disk
    before this returns; see `Offsets.bound` and `Beginnings.bound`.

    Otherwise their groups would miss the next messages, which get those offsets.
    """
    if _set_back(store, offsets):
        _save(store, offsets.file.save_now)


def _set_back(store: Store, offsets: Offsets, former: Collection[str] = ()) -> bool:
    beyond = offsets.bound(store.next_queue_offset, former)
    for key in beyond:
        log.warning("%s: the offset was beyond the end of the queue, set back", key)
    is_ahead = offsets.begins.bound(store.written.offset)
    offsets.file.is_changed |= is_ahead
    return bool(beyond) or is_ahead


def _save(store: Store, save: Callable[[], None]) -> None:
    if not store.save_corrected(save):
        log.warning("the disk has no room for the corrections of this start; messages are refused until it has")
