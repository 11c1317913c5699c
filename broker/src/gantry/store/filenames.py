"""All file names of a store: made and parsed only here.

    commitlog/00000000001073741824             segments: 20 digits, the log offset of the first byte
    consumequeue/<topic>/<queue>/<20 digits>   queue files: the byte offset in the queue (index * 20)
    index/20261121093000123                    index files: local time of creation, milliseconds
    config/*.json  *.json.bak                  tables of the broker, and topicGenerations.json
    checkpoint  abort  lock                    RocketMQ's
    gantry/                                    ours: recovery (the recovery file), queues.json (next offsets),
                                               segment.new and index.new (being allocated), reserve (room),
                                               identity.json (whose the folder is);
                                               of a group's member: epochs, reshape.json (what a start has to do to
                                               the log first), losses.json (what that took), revive.json (to lives
                                               of topics)

RocketMQ refuses a store whose commitlog or index folder holds a name that is not a number, therefore
whatever is unfinished stands in our own folder and is renamed into its place.
"""

from __future__ import annotations

import time

from gantry.errors import StoreError

_OFFSET_DIGITS = 20
_INDEX_DIGITS = 17


def commit_log(root: str) -> str:
    """Return the folder of the log's segments."""
    return f"{root}/commitlog"


def consume_queues(root: str) -> str:
    """Folder of the topics' queues."""
    return f"{root}/consumequeue"


def topic_queues(root: str, topic: str) -> str:
    """Folder of one topic's queues."""
    if not topic or "/" in topic or "\0" in topic or topic in (".", ".."):
        raise StoreError(f"topic {topic!r} cannot be the name of a folder")
    return f"{root}/consumequeue/{topic}"


def queue(root: str, topic: str, queue_id: int) -> str:
    """Folder of one queue's files."""
    return f"{topic_queues(root, topic)}/{queue_id}"


def index(root: str) -> str:
    """Folder of the index files."""
    return f"{root}/index"


def reserve(root: str) -> str:
    """Return the path of the reserve: a file that is removed to make room on a full disk."""
    return f"{root}/gantry/reserve"


def config(root: str, name: str) -> str:
    """A table of the broker, for instance `topics.json`."""
    return f"{root}/config/{name}"


def checkpoint(root: str) -> str:
    """Return the path of RocketMQ's checkpoint file."""
    return f"{root}/checkpoint"


def abort(root: str) -> str:
    """Return the path of the `abort` file, which exists while a broker runs and after an unclean stop."""
    return f"{root}/abort"


def lock(root: str) -> str:
    """Return the path of the lock file, which the broker that has the store open has locked."""
    return f"{root}/lock"


def ours(root: str) -> str:
    """Return the folder of our own files, which RocketMQ does not use."""
    return f"{root}/gantry"


def recovery(root: str) -> str:
    """Return the path of the recovery file, which says where a start after a crash begins to read."""
    return f"{root}/gantry/recovery"


def queue_base(root: str) -> str:
    """Return the path of the queue-base table: the next offset of every queue."""
    return f"{root}/gantry/queues.json"


def term_promise(root: str) -> str:
    """Return the path of the term promise of a group's member, with its incarnation."""
    return f"{root}/gantry/vows.json"


def identity(root: str) -> str:
    """Return the path of the file that says which cluster and which store this is."""
    return f"{root}/gantry/identity.json"


def epochs(root: str) -> str:
    """Return the path of the epoch table: which epoch wrote which part of the log."""
    return f"{root}/gantry/epochs"


def reshape(root: str) -> str:
    """Return the path of the file that says how the log has to be cut before it is opened."""
    return f"{root}/gantry/reshape.json"


def losses(root: str) -> str:
    """Return the path of the file that counts the messages lost when the log was cut."""
    return f"{root}/gantry/losses.json"


def revive(root: str) -> str:
    """Return the path of the list of topics whose queues a start has to rebuild with another generation."""
    return f"{root}/gantry/revive.json"


def new_segment(root: str) -> str:
    """Return the path of a segment while it is being allocated."""
    return f"{root}/gantry/segment.new"


def new_index_file(root: str) -> str:
    """Return the path of an index file while it is being allocated."""
    return f"{root}/gantry/index.new"


def by_offset(folder: str, offset: int) -> str:
    """Return the path of a segment or queue file, by the offset of its first byte."""
    return f"{folder}/{offset:020d}"


def parse_offset(name: str) -> int | None:
    """The offset in a segment's or queue file's name; None for any other name."""
    return int(name) if len(name) == _OFFSET_DIGITS and name.isascii() and name.isdigit() else None


def index_file(root: str, created_ms: int) -> str:
    """An index file, named by local time as RocketMQ does."""
    seconds, milliseconds = divmod(created_ms, 1000)
    return f"{index(root)}/{time.strftime('%Y%m%d%H%M%S', time.localtime(seconds))}{milliseconds:03d}"


def index_file_after(path: str) -> str:
    """The index file whose name is the next number; it need not be a time, and RocketMQ reads a number too."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{int(name) + 1:0{_INDEX_DIGITS}d}"


def is_index_file(name: str) -> bool:
    """Whether this is an index file's name."""
    return len(name) == _INDEX_DIGITS and name.isascii() and name.isdigit()


def parse_queue_id(name: str) -> int | None:
    """Return the queue id in a folder's name; None for any other name."""
    return int(name) if name.isascii() and name.isdigit() else None
