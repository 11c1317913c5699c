"""Finding out what RocketMQ's broker did to topics in this folder; it knows neither our queue table nor generations.

It may have deleted a topic, or deleted it and made it again, which then counts from 0 in the log behind the old
records.  The table of queues remembers a higher end; the queue must not be raised to it, and what the log has of the
former topic is buried (`generations`), so that it does not come back when queues are built from the log.

    its queues are there    they are right.  An entry below the remembered end that names a record behind what the table
                            knows tells a queue that begins again; where all queues begin there, the topic was made
                            again
    they are not            number 0 in the log, behind other records of the queue (`Derivation.restarts`), says so
    the topic is gone       it has no folder and is not in topics.json.  A topic that the table of queues does not
                            know was made and deleted in between; that is believed only after a stop in order,
                            since a power cut may take a young topic's folder and its line in topics.json.  RocketMQ's
                            own topics are never deleted
    it is gone, and its     the next start of RocketMQ's broker put messages of the log into queues once more.  It is
    queues are there        not in topics.json, which changed after its last message.  Believed only where ours stopped
                            in order before, for a kill of ours may have kept a young topic out of topics.json

A topic that was made again and got no message yet looks like one that lost its files: its old messages come back.
"""

from __future__ import annotations

from typing import NamedTuple

from gantry.errors import StoreError
from gantry.leaves.records import Record
from gantry.model import names
from gantry.store import filenames, lockfile, statefile
from gantry.store.commitlog import CommitLog
from gantry.store.consumequeue import ConsumeQueue
from gantry.store.disk import Disk
from gantry.store.queuebase import QueueBase
from gantry.store.queuetable import QueueTable


def has_opened(disk: Disk, root: str) -> bool:
    """Return whether RocketMQ's broker has started in this folder since ours last took in what it had done.

    Its checkpoint does not always tell: it stays as ours wrote it where that broker stored no message, and where it was
    killed before it saved one.
    """
    path = filenames.lock(root)
    if not disk.exists(path):
        return False
    file = disk.open(path, create=False)
    try:
        return file.pread(len(lockfile.ROCKETMQ), 0) == lockfile.ROCKETMQ
    finally:
        file.close()


def forget_opening(disk: Disk, root: str) -> None:
    """Remove RocketMQ's word from the lock file, durably: what that broker did is durable in our own files."""
    if not has_opened(disk, root):
        return
    file = disk.open(filenames.lock(root), create=False)
    try:
        content = file.pread(lockfile.CONTENT_BYTES_MAX, 0)
        rest = content[len(lockfile.ROCKETMQ) :].strip() + b"\n"
        file.pwrite(rest.ljust(len(content)), 0)
        file.sync_data()
    finally:
        file.close()


class Listed(NamedTuple):
    """The topics of topics.json; none where it cannot be told what RocketMQ's broker deleted."""

    topics: frozenset[str] = frozenset()
    changed_ms: int = 0  # when one was made, changed or deleted last; 0: not known


def listed_topics(disk: Disk, root: str) -> Listed:
    """Read topics.json; not its backup, which is older: a topic missing there need not be deleted."""
    path, problems = filenames.config(root, "topics.json"), list[str]()
    if not disk.exists(filenames.consume_queues(root)) or not disk.exists(path):
        return Listed()  # all queues are to be built again
    try:
        document = statefile.read_object(disk, path, problems.append) or {}
    except StoreError:
        return Listed()
    listed, version = document.get("topicConfigTable"), document.get("dataVersion")
    if problems or not isinstance(listed, dict):
        return Listed()
    changed_ms = version.get("timestamp") if isinstance(version, dict) else 0
    return Listed(frozenset(listed), changed_ms if isinstance(changed_ms, int) else 0)


def is_deleted(disk: Disk, root: str, listed: frozenset[str], topic: str) -> bool:
    """Whether RocketMQ's broker deleted a topic that has messages, and did not make it again.

    It deletes no topics of its own, and older versions do not list all of them.
    """
    if not listed or topic in listed or names.is_system_topic(topic):
        return False
    return not disk.list(filenames.topic_queues(root, topic))


def bury_deleted(table: QueueTable, log: CommitLog, listed: Listed) -> list[str]:
    """Bury topics whose queues RocketMQ's broker built again after it had deleted them."""
    found: dict[str, list[ConsumeQueue]] = {}
    for queue in table if listed.topics else ():
        if queue.topic not in listed.topics and not _is_unlisted(queue.topic):
            found.setdefault(queue.topic, []).append(queue)
    deleted = {
        topic: queues
        for topic, queues in found.items()
        if all((last := _last(log, queue)) is not None and last.store_ms < listed.changed_ms for queue in queues)
    }
    for topic, queues in deleted.items():
        table.bury(topic, max(queue.log_end for queue in queues))
        for queue in queues:
            table.drop(topic, queue.queue_id)
    return list(deleted)


def _is_unlisted(topic: str) -> bool:
    """Whether a topic may live without a line in topics.json."""
    return names.is_system_topic(topic) or topic.startswith(names.LMQ_PREFIX)


def _last(log: CommitLog, queue: ConsumeQueue) -> Record | None:
    entry = queue.entry(queue.next - 1)
    return None if entry is None else log.record(entry[0], entry[1], log.segments.end)


def without_made_again(table: QueueTable, base: QueueBase, log_start: int) -> QueueBase:
    """The table of queues without those that begin again; what a topic had before it was made again is buried."""
    begins: dict[str, list[int]] = {topic: [] for topic in base.ends}
    for queue in table:
        if queue.topic in begins and (at := queue.begins) is not None:
            begins[queue.topic].append(at)
    kept = {}
    for topic, queues in base.ends.items():
        went_on = {
            queue_id: ends
            for queue_id, ends in queues.items()
            if not _begins_again(table.get(topic, queue_id), ends[1], base.log_offset)
        }
        is_all_here = len(went_on) == len(queues) and all(table.get(topic, queue_id) for queue_id in queues)
        first = min(begins[topic], default=0)
        if is_all_here or first < base.log_offset:
            kept[topic] = went_on
        elif first > log_start:
            table.bury(topic, first)
    return base._replace(ends=kept)


def _begins_again(queue: ConsumeQueue | None, following: int, log_offset: int) -> bool:
    """Whether an entry below the remembered end names a record behind what the table knows."""
    if queue is None or not queue.first < following:
        return False
    found = queue.entry(min(queue.next, following) - 1)
    return found is not None and found[0] >= log_offset


def bury_before(table: QueueTable, topic: str, log_start: int, old_end: int = 0) -> None:
    """Bury what the log has of a topic before it was made again.

    old_end: where the last record of its former queues ends that is known; queues that begin before it are of those,
    unless it is gone from the log, for then only a queue may have begun again and not the topic.  One that goes on
    behind the new beginning stays: its old messages came back, and acknowledged ones followed under the next numbers.
    """
    begins = {queue: at for queue in table if queue.topic == topic and (at := queue.begins) is not None}
    at = min((at for at in begins.values() if at >= old_end or old_end <= log_start), default=0)
    if old_end > log_start:
        for queue, first in begins.items():
            if first < old_end and queue.log_end <= at:
                table.drop(topic, queue.queue_id)
    if at > log_start:
        table.bury(topic, at)
