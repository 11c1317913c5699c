"""What a link needs at the master's end (`MasterEnd`, `LinkRules`) and the slave's (`SlaveEnd`, `LinkWaits`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from gantry.replication.handshake import Hello, No, Welcome
from gantry.replication.timers import LINK_S
from gantry.store.background import Done
from gantry.wire.ha import Ack

_AGAIN_S = 1.0


class SlaveNews(Protocol):
    """Receives what slaves send, on the loop; a slave is named by its place in the group."""

    def acked(self, place: int, ack: Ack) -> None:
        """Note what a slave has acknowledged."""
        ...

    def commits(self, body: bytes) -> None:
        """Apply consumer offsets that were committed on a slave; ValueError when they are invalid."""
        ...

    def promised(self, place: int, epoch: int) -> None:
        """Note that the slave has the promise of this epoch on its disk; it takes no more records of this one."""
        ...

    def went(self, place: int, is_leaving: bool) -> None:
        """Note that a slave's link ended."""
        ...


class MasterEnd(SlaveNews, Protocol):
    """What the links call in the broker; all on the loop."""

    @property
    def marks(self) -> tuple[int, int, int]:
        """The written and the confirmed offset, and where the log begins."""
        ...

    def judge(self, hello: Hello) -> Welcome | No:
        """Return the answer to a slave's hello."""
        ...

    def chunk(self, start: int, bytes_max: int) -> tuple[memoryview, int]:
        """Return whole records from `start` on, and the offset of the next ones."""
        ...

    def bring_in(self, start: int, bytes_max: int, done: Callable[[], None]) -> int:
        """Read a stretch of cold log, then call done. Return its length in bytes, 0 when it is warm already."""
        ...

    @property
    def needed(self) -> int:
        """The number of the newest change of metadata that must be sent before the records behind it."""
        ...

    def changes(self, after: int) -> Iterator[tuple[int, list[object]]]:
        """Yield the numbered changes of metadata after this one; after 0: the whole metadata.

        The caller may rest between two batches.
        """
        ...

    def came(self, hello: Hello, address: str) -> str:
        """Note that a slave begins to follow. Return why it may not; empty: it may."""
        ...

    def is_waited_for(self, place: int) -> bool:
        """Return whether writes are confirmed, or accepted, only with this slave."""
        ...


@dataclass(frozen=True, slots=True)
class LinkRules:
    """Seconds between two beats; seconds without a word after which a link ends; whether beats ask for an answer now,
    which extends the serving lease.
    """

    beat_s: float
    silence_s: float
    asks_answer: Callable[[], bool]


class SlaveEnd(Protocol):
    """What the link calls in the broker; all on the loop."""

    def hello(self) -> tuple[Hello, int]:
        """Return this slave's hello, and the offset up to which it holds its log by its flush policy."""
        ...

    def master(self) -> str:
        """Return HOST:PORT of the master's replication port; empty while it is not known."""
        ...

    def adopt(self, welcome: Welcome, done: Done) -> None:
        """Put the contents of the welcome on the disk, then call done."""
        ...

    def promise(self, epoch: int, done: Done) -> None:
        """Put the promise of an epoch on the disk, then call done."""
        ...

    def reshape(self, welcome: Welcome) -> None:
        """The log has to be cut or begun at another offset, which needs a closed store."""
        ...

    def append(self, start: int, records: memoryview) -> int:
        """Write records at `start`. Return the log's new end."""
        ...

    def held(self) -> int:
        """Return the offset up to which it holds its log by its flush policy."""
        ...

    def apply(self, number: int, changes: list[object]) -> None:
        """Apply changes of metadata; ValueError when they are invalid."""
        ...

    def marks(self, confirmed: int, log_start: int, written: int) -> None:
        """Note the confirmed offset, and where the master's log begins and ends."""
        ...

    def ended(self) -> None:
        """Note that the link ended."""
        ...


@dataclass(frozen=True, slots=True)
class LinkWaits:
    """Seconds: pauses between links double from `first_s` to `again_s`; a master silent for `silence_s` is left."""

    first_s: float = _AGAIN_S
    again_s: float = _AGAIN_S
    silence_s: float = LINK_S
