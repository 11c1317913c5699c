"""What members of other versions say and understand, in a simulation in which all run this version's code.

    PREVIOUS    says no field that came after `golden/previous`, and does not read one
    PRESENT     this version
    NEXT        says a field and carries a table of metadata that this version has never heard of

Each process's loop knows its revision.  `spoken` puts that between the code and the wire: what goes out, and what a
reader of the previous version would see of it.  The bytes themselves are frozen in `golden/test_previous_version.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from gantry.replication import handshake, master, slave
from gantry.replication.handshake import Hello, Welcome
from gantry.replication.hastate import MemberState, read_state
from gantry.replication.record import RegisterRecord
from gantry.wire import ha

# Fields of a hello or a state that the previous version does not know.
LATER = frozenset({"diskFull", "short", "terms"})
_UNKNOWN_FIELD = {"of the next version": {"a": [1]}}
_UNKNOWN_CHANGE = ["wishes", "of the next version", {"a": 1}]


class Revision(enum.Enum):
    """Of one process."""

    PREVIOUS = "the previous version"
    PRESENT = "this version"
    NEXT = "the next version"

    def __str__(self) -> str:
        return self.value


def here() -> Revision:
    """That of the process whose turn it is."""
    found = getattr(asyncio.get_running_loop(), "revision", None)
    return found if isinstance(found, Revision) else Revision.PRESENT


def said(document: dict[str, Any], revision: Revision) -> dict[str, Any]:
    """A document as a process of this revision sends it, or reads it."""
    if revision is Revision.PREVIOUS:
        return {name: value for name, value in document.items() if name not in LATER}
    return {**document, **_UNKNOWN_FIELD} if revision is Revision.NEXT else document


def told(state: MemberState, revision: Revision) -> MemberState:
    """A member's state as a coordinator reads it from a member of this revision."""
    return read_state(said(state.to_document(), revision))


def recorded(record: RegisterRecord, former: RegisterRecord | None) -> RegisterRecord:
    """What a process of this revision leaves in a Lease: an annotation that it does not know stays as it is."""
    if here() is not Revision.PREVIOUS:
        return record
    return replace(record, leader_terms=None if former is None else former.leader_terms)


def _sent(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    return lambda this: ha.dumps(said(json.loads(encode(this)), here()))


def _read(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def reading(body: bytes) -> Any:
        document = json.loads(bytes(body))
        return read(ha.dumps(said(document, here()) if here() is Revision.PREVIOUS else document))

    return reading


def _carried(metadata: Callable[[int, object], bytes]) -> Callable[[int, object], bytes]:
    def carrying(number: int, entries: object) -> bytes:
        assert isinstance(entries, list)
        return metadata(number, [*entries, _UNKNOWN_CHANGE] if here() is Revision.NEXT else entries)

    return carrying


@contextlib.contextmanager
def spoken() -> Iterator[None]:
    """Within this each process speaks as its revision does."""
    before: list[tuple[Any, str, Any]] = [
        (Hello, "encode", Hello.encode),
        (Welcome, "encode", Welcome.encode),
        (master, "read_hello", handshake.read_hello),
        (slave, "read_welcome", handshake.read_welcome),
        (ha, "metadata", ha.metadata),
    ]
    for (place, name, usual), through in zip(before, (_sent, _sent, _read, _read, _carried), strict=True):
        setattr(place, name, through(usual))
    try:
        yield
    finally:
        for place, name, usual in before:
            setattr(place, name, usual)
