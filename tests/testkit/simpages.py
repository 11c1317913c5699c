"""What a simulated disk holds, and what of it a power cut leaves: files by pages, folders by names.

A file has its contents now, its contents when it was last synced, and for each page written since then the states
that it went through.  A folder has its names now, its names when it was last synced, and the changes in between.
`survivor` draws one of the many trees that a machine may find when it boots.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

PAGE_BYTES = 4096
SECTOR_BYTES = 512
_STATES_MAX = 6

Buffer = bytes | bytearray | memoryview


class Node:
    """One file's contents, now and durable."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.older: list[bytearray] = []  # buffers that maps of a smaller size still show
        self.durable = bytearray()
        # Pages that a crash may keep (written, not synced, not lost by a failed sync), and what they went through.
        self.dirty: dict[int, list[bytes]] = {}
        self.blocks: set[int] = set()
        self.modified_ms = 0
        self.is_unreported = False  # pages were lost, and no sync of this file has said so yet

    def resize(self, size: int) -> None:
        assert size >= len(self.data), "files only grow"
        try:
            self.data.extend(bytes(size - len(self.data)))
        except BufferError:  # a map of the old size is out: it keeps its buffer, and later writes go to both
            self.older.append(self.data)
            self.data = self.data[:] + bytes(size - len(self.data))

    def put(self, data: Buffer, offset: int) -> None:
        if offset + len(data) > len(self.data):
            self.resize(offset + len(data))
        for buffer in (*self.older, self.data):
            end = min(len(buffer), offset + len(data))
            if end > offset:
                buffer[offset:end] = data[: end - offset]
        for number in pages_of(offset, offset + len(data)):
            states = self.dirty.setdefault(number, [])
            states.append(self.page(number))
            del states[:-_STATES_MAX]

    def page(self, number: int) -> bytes:
        return bytes(self.data[number * PAGE_BYTES : (number + 1) * PAGE_BYTES])

    def make_durable(self, pages: Iterable[int]) -> None:
        if len(self.durable) < len(self.data):
            self.durable.extend(bytes(len(self.data) - len(self.durable)))
        for number in pages:
            self.durable[number * PAGE_BYTES : (number + 1) * PAGE_BYTES] = self.page(number)

    def sync(self) -> None:
        self.make_durable(self.dirty)
        self.dirty.clear()

    def fail_sync(self, rng: random.Random) -> None:
        self.make_durable([number for number in self.dirty if rng.random() < 0.5])
        self.dirty.clear()

    def fail_write_back(self, rng: random.Random) -> None:
        """Nobody was asked for this file in particular: its next sync tells that it lost pages."""
        if self.dirty and rng.random() < 0.5:
            self.fail_sync(rng)
            self.is_unreported = True
        else:
            self.sync()


def pages_of(start: int, end: int) -> range:
    return range(start // PAGE_BYTES, -(-end // PAGE_BYTES))


class Move:
    """A file or folder loses a name, gets one, or both; atomic, also between two folders."""

    def __init__(
        self, what: Node | Folder, source: tuple[Folder, str] | None, target: tuple[Folder, str] | None
    ) -> None:
        self.what = what
        self.source = source
        self.target = target

    @property
    def folders(self) -> list[Folder]:
        """Those that it touches, each once."""
        found = [end[0] for end in (self.source, self.target) if end is not None]
        return found[:1] if len(found) == 2 and found[0] is found[1] else found

    def apply(self, folder: Folder, entries: dict[str, Node | Folder]) -> None:
        """Do to `entries`, some state of this folder, what the move does to the folder."""
        if self.source is not None and self.source[0] is folder and entries.get(self.source[1]) is self.what:
            del entries[self.source[1]]
        if self.target is not None and self.target[0] is folder:
            entries[self.target[1]] = self.what


class Folder:
    """Names now, names durable, and the moves between them in order."""

    def __init__(self) -> None:
        self.entries: dict[str, Node | Folder] = {}
        self.durable: dict[str, Node | Folder] = {}
        self.pending: list[Move] = []

    def sync(self) -> None:
        """All names here are durable; what was moved from or to another folder is so there too."""
        for move in self.pending:
            for other in move.folders:
                if other is not self:
                    move.apply(other, other.durable)
                    other.pending.remove(move)
        self.durable = dict(self.entries)
        self.pending.clear()


def make(move: Move) -> None:
    """Carry out a move, not durably."""
    for folder in move.folders:
        move.apply(folder, folder.entries)
        folder.pending.append(move)


def walk(folder: Folder, path: str) -> Iterator[tuple[str, Node]]:
    for name, found in sorted(folder.entries.items()):
        if isinstance(found, Node):
            yield f"{path}/{name}", found
        else:
            yield from walk(found, f"{path}/{name}")


def walk_folders(folder: Folder) -> Iterator[Folder]:
    """This one and all below it."""
    yield folder
    for found in list(folder.entries.values()):
        if isinstance(found, Folder):
            yield from walk_folders(found)


def survivor(root: Folder, rng: random.Random | None) -> Folder:
    """One of the trees that a power cut may leave; without rng what is durable and nothing else."""
    keep = rng.choice((0.0, 0.5, 1.0)) if rng is not None else 0.0
    kept: dict[int, bool] = {}
    files: dict[int, Node] = {}

    def survives(move: Move) -> bool:
        if id(move) not in kept:
            kept[id(move)] = rng is not None and rng.random() < keep
        return kept[id(move)]

    def folder_after(folder: Folder) -> Folder:
        entries = dict(folder.durable)
        for move in folder.pending:
            if survives(move):
                move.apply(folder, entries)
        after = Folder()
        for name, found in entries.items():
            if isinstance(found, Folder):
                after.entries[name] = folder_after(found)
            else:
                # A file that two lost and kept moves left with two names is one file.
                if id(found) not in files:
                    files[id(found)] = _survivor_node(found, rng)
                after.entries[name] = files[id(found)]
        after.durable = dict(after.entries)
        return after

    return folder_after(root)


def _survivor_node(node: Node, rng: random.Random | None) -> Node:
    after = Node()
    after.modified_ms = node.modified_ms
    after.data = bytearray(node.durable)
    if rng is not None:
        _keep_some(node, after, rng)
    after.durable = bytearray(after.data)
    after.blocks = {number for number in node.blocks if number * PAGE_BYTES < len(after.data)}
    return after


def _keep_some(node: Node, after: Node, rng: random.Random) -> None:
    size = rng.choice((len(node.durable), len(node.data), rng.randint(len(node.durable), len(node.data))))
    after.data.extend(bytes(size - len(after.data)))
    keep = rng.choice((0.0, 0.2, 0.5, 0.8, 1.0))
    latest = rng.random() < 0.5
    for number, states in sorted(node.dirty.items()):
        if rng.random() >= keep:
            continue
        state = states[-1] if latest else rng.choice(states)
        _keep_sectors(after.data, number * PAGE_BYTES, state, 1.0 if rng.random() < 0.5 else keep, rng)


def _keep_sectors(data: bytearray, start: int, state: bytes, keep: float, rng: random.Random) -> None:
    for at in range(0, len(state), SECTOR_BYTES):
        end = min(at + SECTOR_BYTES, len(state), len(data) - start)
        if at < end and rng.random() < keep:
            data[start + at : start + end] = state[at:end]
