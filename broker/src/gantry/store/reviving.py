"""Taking lives of topics back that a member believed in and its group does not have.

A master that was cut off deletes a topic, and nobody else keeps that.  When it follows the next master, for which the
topic lives on, its gravestone would hide records that were acknowledged.  So the start after that puts the master's
life in its place, or none, and builds the topic's queues again from the log:

    1. what is to be done stands in `gantry/revive.json`, synced, before anything else happens
    2. a start removes the queues of these topics and dispatches the log from its beginning, with the other lives
    3. the other lives, then queues and recovery point are durable
    4. the file goes

Whenever it dies before step 4, the next start does all of it once more.  A topic that has got yet another life
meanwhile is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gantry.errors import StoreError
from gantry.store import filenames, statefile
from gantry.store.disk import Disk
from gantry.store.generations import Generations, TopicGeneration


class Revival(NamedTuple):
    """One topic: the life that it has here and shall not have, and its life in the group; None: it has none there."""

    was: TopicGeneration | None
    now: TopicGeneration | None


def note(disk: Disk, root: str, revivals: Mapping[str, Revival]) -> None:
    """From here on the next start does these too.  Durable when this returns."""
    table = {topic: one._asdict() for topic, one in ({**load(disk, root), **revivals}).items()}
    statefile.replace(disk, filenames.revive(root), statefile.to_bytes(table), for_newest=True)


def load(disk: Disk, root: str) -> dict[str, Revival]:
    """What has to be done, if anything has, by topic.  StoreError when that cannot be read."""
    path = filenames.revive(root)
    try:
        table = statefile.read_newest(disk, path) or {}
        return {topic: _revival(value) for topic, value in table.items()}
    except ValueError as error:
        raise StoreError(f"{path}: {error}; restore it from its .bak") from error


def carry_out(disk: Disk, root: str, lives: Generations) -> list[str]:
    """Step 2 for the topics that it is still right for: `lives` are the right ones then; the topics' names."""
    topics = []
    for topic, (was, now) in load(disk, root).items():
        if lives.life(topic) in (was, now):
            lives.take(topic, now)
            disk.remove_tree(filenames.topic_queues(root, topic))
            topics.append(topic)
    return topics


def done(disk: Disk, root: str, topics: list[str]) -> None:
    """Step 4; the backup goes first, since alone it would count.  That queues went is durable before."""
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
        raise ValueError(f"{str(value)[:40]} is nothing to be done")
    return Revival(_life(value.get("was")), _life(value.get("now")))


def _life(value: object) -> TopicGeneration | None:
    if value is None:
        return None
    if isinstance(value, list) and len(value) == 2 and all(isinstance(one, int) for one in value):
        return TopicGeneration(*value)
    raise ValueError(f"{str(value)[:40]} is no life")
