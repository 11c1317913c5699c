"""Replacing generations of topics that a member has and its group does not.

A master that was cut off deletes a topic, and no other member stores the deletion.  When it follows the next master,
which still has the topic, its gravestone would hide records that were acknowledged.  So the next start takes over the
master's generation, or none, and builds the topic's queues again from the log:

    1. what is to be done stands in `gantry/revive.json`, synced, before anything else happens
    2. a start removes the queues of these topics and dispatches the log from its beginning, with the new generations
    3. the new generations, then queues and recovery point are durable
    4. the file is removed

When the process dies before step 4, the next start repeats all of it.  A topic that has got yet another generation
meanwhile is not changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gantry.errors import StoreError
from gantry.store import filenames, statefile
from gantry.store.disk import Disk
from gantry.store.generations import Generations, TopicGeneration


class Revival(NamedTuple):
    """One topic: its wrong generation here, and its generation in the group; None: it was never deleted there."""

    was: TopicGeneration | None
    now: TopicGeneration | None


def note(disk: Disk, root: str, revivals: Mapping[str, Revival]) -> None:
    """Write down topics for the next start to revive; durable when this returns."""
    table = {topic: one._asdict() for topic, one in ({**load(disk, root), **revivals}).items()}
    statefile.replace(disk, filenames.revive(root), statefile.to_bytes(table), for_newest=True)


def load(disk: Disk, root: str) -> dict[str, Revival]:
    """Read which topics have to be revived; empty when none has.  StoreError when the file is damaged."""
    path = filenames.revive(root)
    try:
        table = statefile.read_newest(disk, path) or {}
        return {topic: _revival(value) for topic, value in table.items()}
    except ValueError as error:
        raise StoreError(f"{path}: {error}; restore it from its .bak") from error


def carry_out(disk: Disk, root: str, lives: Generations) -> list[str]:
    """Do step 2: remove queues, correct `lives`, and return the names of the topics; others have changed since."""
    topics = []
    for topic, (was, now) in load(disk, root).items():
        if lives.life(topic) in (was, now):
            lives.take(topic, now)
            disk.remove_tree(filenames.topic_queues(root, topic))
            topics.append(topic)
    return topics


def done(disk: Disk, root: str, topics: list[str]) -> None:
    """Do step 4: remove the file; its backup first, because a backup alone would be read at the next start."""
    path = filenames.revive(root)
    if disk.exists(path) or disk.exists(f"{path}.bak"):
        for folder in (filenames.consume_queues(root), *(filenames.topic_queues(root, topic) for topic in topics)):
            if disk.exists(folder):
                disk.sync_folder(folder)
        disk.unlink(f"{path}.bak")
        disk.sync_folder(filenames.ours(root))
        disk.unlink(path)
        disk.sync_folder(filenames.ours(root))


def _revival(value: object) -> Revival:
    if not isinstance(value, dict):
        raise ValueError(f"{str(value)[:40]} is not the entry of a topic")
    return Revival(_life(value.get("was")), _life(value.get("now")))


def _life(value: object) -> TopicGeneration | None:
    if value is None:
        return None
    if isinstance(value, list) and len(value) == 2 and all(isinstance(one, int) for one in value):
        return TopicGeneration(*value)
    raise ValueError(f"{str(value)[:40]} is not a generation")
