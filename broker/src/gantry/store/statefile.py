"""Tables of the broker as JSON files, replaced atomically, with the previous version beside them as `.bak`.

Saving: write `<name>.tmp`, sync it, rename the old file to `.bak`, rename the new one into its place, sync the
folder.  After any crash, the main file or the backup is whole.

Strict JSON is written.  Read is also what RocketMQ's fastjson writes for maps with numbers as keys:
`{"topic@group":{0:123}}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from gantry.errors import StoreError
from gantry.store.background import Worker
from gantry.store.disk import Disk

_WHOLE_FILE_BYTES = 1 << 30
_PIECE_CHARS = 64 << 10
# A string, or a bare number where a key belongs; strings are matched first so that nothing inside them is touched.
_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True).encode
_BARE_KEY = re.compile(r'("(?:[^"\\]|\\.)*")|([{,]\s*)(-?\d+)(\s*:)')


class JsonState:
    """One table's file.  save() may be called at any time: while one is under way, the newest waits.

    What could not be saved waits for the next save(), or for retry().  `on_failed` is called after each attempt that
    failed, `on_saved` after each that succeeded, and `on_damaged` with the reason why load() took the backup.
    """

    def __init__(
        self,
        path: str,
        disk: Disk,
        housekeeper: Worker,
        on_failed: Callable[[str, StoreError], None] = lambda path, error: None,
        on_saved: Callable[[], None] = lambda: None,
        on_damaged: Callable[[str], None] = lambda problem: None,
    ) -> None:
        self._path = path
        self._disk = disk
        self._housekeeper = housekeeper
        self._on_failed = on_failed
        self._on_saved = on_saved
        self._on_damaged = on_damaged
        self.asked = 0  # tables that save() was given
        self.kept = 0  # of these, up to which the file holds them or newer ones
        self._waiting: Contents | None = None
        self._is_saving = False
        self.error: StoreError | None = None

    def load(self) -> dict[str, object] | None:
        """The table, from the backup if the main file is damaged; None when there is neither."""
        return read_object(self._disk, self._path, self._on_damaged)

    def save(self, table: Mapping[str, object]) -> None:
        """Have the housekeeper replace the file; `error` is the failure of the last attempt, if it failed."""
        self._waiting = contents_of(table)
        self.asked += 1
        self._submit()

    def retry(self) -> None:
        """Save again what could not be saved; usually there is nothing to do."""
        self._submit()

    def save_now(self, table: Mapping[str, object]) -> None:
        """Replace the file before returning; for starts and shutdown.  StoreError: retry() tries it again."""
        # An older table that waits would be given to the housekeeper by the drain, and be written at the same time.
        self._waiting = None
        self._housekeeper.drain()
        self._waiting = contents = contents_of(table)
        _save(self._disk, self._path, contents)
        self._waiting = None
        self.kept = self.asked

    def _submit(self) -> None:
        if self._is_saving or self._waiting is None:
            return
        contents, self._waiting = self._waiting, None
        self._is_saving = True
        job = partial(_save, self._disk, self._path, contents)
        if not self._housekeeper.submit(job, partial(self._saved, contents, self.asked)):
            # When the housekeeper's queue is full, the next save() replaces this one.
            self._is_saving, self._waiting = False, contents

    def _saved(self, contents: Contents, number: int, error: StoreError | None) -> None:
        self._is_saving = False
        self.error = error
        if error is None or self._waiting is not None:
            self._submit()
        else:
            self._waiting = contents
        if error is not None:
            self._on_failed(self._path, error)
        else:
            self.kept = max(self.kept, number)
            self._on_saved()


def read_object(
    disk: Disk, path: str, on_damaged: Callable[[str], None] = lambda problem: None
) -> dict[str, object] | None:
    """The JSON object in a file or its backup; None when neither exists, StoreError when neither can be read.

    `on_damaged` is called with the reason when the backup is taken in the file's place.
    """
    problem = ""
    for name in (path, f"{path}.bak"):
        if not disk.exists(name):
            continue
        file = disk.open(name, create=False)
        found = file.pread(min(file.size(), _WHOLE_FILE_BYTES), 0)
        file.close()
        try:
            table = parse(found)
        except ValueError as error:
            problem = problem or f"{name} cannot be read: {error}"
            continue
        if problem:
            on_damaged(problem)
        return table
    if problem:
        raise StoreError(f"{problem}; restore it from a backup or remove it to begin with an empty table")
    return None


def read_newest(disk: Disk, path: str) -> dict[str, object] | None:
    """The JSON object that `replace` completed last; None when there was none, ValueError when it is damaged.

    The backup is taken only where `replace` was interrupted between its renames, so that the new file exists under its
    temporary name; never for a damaged file, and never for one that was removed by hand.  For tables whose older
    contents would be wrong.
    """
    for name in (path, f"{path}.bak") if disk.exists(f"{path}.tmp") else (path,):
        if disk.exists(name):
            file = disk.open(name, create=False)
            try:
                return parse(file.pread(min(file.size(), _WHOLE_FILE_BYTES), 0))
            finally:
                file.close()
    return None


def parse(found: bytes) -> dict[str, object]:
    """A JSON object with fastjson's bare numeric keys allowed; ValueError for anything else."""
    text = found.decode("utf-8")
    try:
        table = json.loads(text)
    except ValueError:
        table = json.loads(_BARE_KEY.sub(_quoted, text))
    if not isinstance(table, dict):
        raise ValueError(f"holds a {type(table).__name__}, expected an object")
    return table


def _quoted(match: re.Match[str]) -> str:
    return match[1] or f'{match[2]}"{match[3]}"{match[4]}'


class Lines(list[str]):
    """The entries of a table as `line` returns them, in order, one or more in each text; handed over, never changed.

    Large tables are encoded in slices, and joined by the job that writes them: that would take too long on the loop.
    """


Contents = list["str | Lines"]
"""A file's text in parts; entries of a `Lines` have a comma between them."""


class Encoded(list["str | Lines"]):
    """A member of a document whose text is made already, in parts like those of a file."""


def encode(value: object) -> str:
    """Return a value's text in a file."""
    return _encode(value)


def line(key: object, value: object) -> str:
    """Return the text of one entry of a table in its file."""
    return f"{_encode(str(key))}: {_encode(value)}"


def to_bytes(table: Mapping[str, object]) -> bytes:
    """The file's contents, in one piece; see `contents_of`."""
    return b"".join(pieces(contents_of(table)))


def contents_of(table: Mapping[str, object]) -> Contents:
    """The file's contents: keys in order, and a line for each entry of a table in it, so that versions can be compared.

    The encoder that indents is written in Python, and five times as slow as this one.
    """
    contents: Contents = []
    between = "{\n "
    for key in sorted(table):
        value = table[key]
        if isinstance(value, Mapping):
            value = Lines(line(one, value[one]) for one in sorted(value))
        head = f"{between}{_encode(str(key))}: "
        if isinstance(value, Encoded):
            contents += [head, *value]
        elif not isinstance(value, Lines):
            contents.append(head + _encode(value))
        elif value:
            contents += [head + "{\n  ", value, "\n }"]
        else:
            contents.append(head + "{}")
        between = ",\n "
    contents.append("\n}\n" if contents else "{\n \n}\n")
    return contents


def pieces(contents: Contents) -> Iterator[bytes]:
    """The contents in pieces that take some 50 us to join: a thread that joins keeps the loop for as long."""
    parts: list[str] = []
    chars = 0
    for part in contents:
        texts = [part] if isinstance(part, str) else part
        for number, text in enumerate(texts):
            parts.append(f",\n  {text}" if number else text)
            chars += len(text)
            if chars > _PIECE_CHARS:
                yield "".join(parts).encode()
                parts, chars = [], 0
    yield "".join(parts).encode()


def replace(disk: Disk, path: str, contents: bytes | Contents, for_newest: bool = False) -> None:
    """Atomically and durably give a file new contents; the old ones become the backup.

    for_newest: the file is read by `read_newest`.  The name of the new file is then durable before the old one is
    renamed.  Otherwise a power cut between the two renames might leave only the backup, as if the rest had been removed
    by hand.
    """
    unfinished = f"{path}.tmp"
    if for_newest and not disk.exists(path) and disk.exists(unfinished) and disk.exists(f"{path}.bak"):
        # The last one was interrupted between its renames.  Without the new file the backup would count no longer.
        disk.rename(f"{path}.bak", path)
        disk.sync_folder(_folder(path))
    disk.unlink(unfinished)
    file = disk.open(unfinished, create=True)
    try:
        at = 0
        for piece in (contents,) if isinstance(contents, bytes) else pieces(contents):
            file.pwrite(piece, at)
            at += len(piece)
        file.sync_data()
    finally:
        file.close()
    if disk.exists(path):
        if for_newest:
            disk.sync_folder(_folder(path))
        disk.rename(path, f"{path}.bak")
    disk.rename(unfinished, path)
    disk.sync_folder(_folder(path))


def _save(disk: Disk, path: str, contents: Contents) -> None:
    disk.make_folders(_folder(path))
    replace(disk, path, contents)


def _folder(path: str) -> str:
    return path.rsplit("/", 1)[0]
