"""What clients were told, and whether what the log holds at the end keeps it.

Stands outside of the brokers: it knows only what a client knows.  Every attempt to send has a body of its own, so a
message that is found twice, or that nobody sent, is seen.  The promises:

    acknowledged    it is there, once, at the place that the reply named
    seen            what a consumer has read at an offset stands there at the end
    in order        of two messages for one queue, of any producers, the second sent after the first was acknowledged
    settled         a half that was acknowledged is delivered once when its producer decided to commit, else never
    delayed         acknowledged is delivered once, and not before its time by the clock of the broker
    no phantom      whatever is there was sent

With ASYNC_FLUSH a power cut may take what was acknowledged in the moments before; `cut` says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from simulation.world import Broken

Place = tuple[str, int]


@dataclass(slots=True)
class Attempt:
    """One message that was sent once."""

    body: bytes
    producer: str
    topic: str
    queue_id: int
    sent_at: float
    acked_at: float | None = None
    offset: int = -1  # in its queue, as the reply said
    is_half: bool = False
    is_committed: bool | None = None  # what its producer decided
    due_ms: int = 0
    may_be_lost: bool = False
    acked_by: str = ""  # the address that said so


@dataclass(slots=True)
class Found:
    """One message as it was read."""

    body: bytes
    offset: int
    store_ms: int


@dataclass(slots=True)
class Ledger:
    """All attempts, and all that was seen."""

    is_sync: bool
    attempts: dict[bytes, Attempt] = field(default_factory=dict)
    seen: dict[tuple[str, int, int], bytes] = field(default_factory=dict)
    read: set[bytes] = field(default_factory=set)  # by anybody, ever
    broken: list[str] = field(default_factory=list)  # found out on the way
    on_acknowledged: list[Callable[[Attempt], None]] = field(default_factory=list)
    is_whole: bool = False  # logs begin at 0 and nothing goes from them: no offset that was given may be out of range

    def acknowledged(self, attempt: Attempt) -> None:
        """Its producer heard SEND_OK, just now."""
        for told in self.on_acknowledged:
            told(attempt)

    def moved(self, place: Place, offset: int, to: int) -> None:
        """A consumer that goes on at the offset which it was given last was told that there is no such offset."""
        if self.is_sync and self.is_whole:
            self.broken.append(f"{place} offset {offset}: out of range, sent to {to}")

    def lost_everywhere(self, since: float) -> None:
        """Every disk that had it lost what came after `since`: also what consumers have seen may go."""
        self.is_sync = False
        self.seen.clear()
        self.cut(since)

    def cut(self, since: float) -> None:
        """The power was cut: with ASYNC_FLUSH what was acknowledged after `since` may be gone."""
        if self.is_sync:
            return
        for attempt in self.attempts.values():
            if attempt.acked_at is None or attempt.acked_at > since:
                attempt.may_be_lost = True

    def saw(self, place: Place, found: Found) -> None:
        """A consumer got this; with ASYNC_FLUSH a power cut may take it back."""
        self.read.add(found.body)
        before = self.seen.setdefault((*place, found.offset), found.body) if self.is_sync else found.body
        if before != found.body:
            both = f"first {before[:20]!r} was read there, then {found.body[:20]!r}"
            self.broken.append(f"{place} offset {found.offset}: {both}")

    def owes(self) -> bool:
        """Whether something that has to be delivered has not been read yet."""
        return any(
            attempt.acked_at is not None
            and not attempt.may_be_lost
            and attempt.body not in self.read
            and (attempt.is_committed is True or not attempt.is_half)
            for attempt in self.attempts.values()
        )

    def check(self, log: dict[Place, list[Found]]) -> str:
        """Compare with everything that can be read at the end; what was checked, in numbers."""
        for place, messages in log.items():
            for found in messages:
                self.saw(place, found)
        if self.broken:
            raise Broken(self.broken[0])
        at_end = {(*place, found.offset) for place, messages in log.items() for found in messages}
        if missing := [where for where in self.seen if where not in at_end]:
            raise Broken(f"{len(missing)} messages were read and are gone, the first at {missing[0]}")
        counts = Counter(found.body for messages in log.values() for found in messages)
        where = {found.body: (place, found) for place, messages in log.items() for found in messages}
        if phantoms := [body for body in counts if body not in self.attempts]:
            raise Broken(f"nobody sent {phantoms[:3]}")
        for attempt in self.attempts.values():
            self._check_one(attempt, counts[attempt.body], where.get(attempt.body))
        self._check_order()
        acked = sum(attempt.acked_at is not None for attempt in self.attempts.values())
        halves = sum(attempt.is_half and attempt.acked_at is not None for attempt in self.attempts.values())
        return f"{len(self.attempts)} sent, {acked} acknowledged ({halves} halves), {len(counts)} in the log"

    def _check_one(self, attempt: Attempt, count: int, where: tuple[Place, Found] | None) -> None:
        name = f"{attempt.body[:20]!r}, sent at {attempt.sent_at:.3f} for {attempt.topic}/{attempt.queue_id},"
        if count > 1:
            raise Broken(f"{name} is there {count} times")
        if attempt.is_half:
            if count and not attempt.is_committed:
                raise Broken(f"{name} was not to be committed and is there")
            if attempt.is_committed and not count and not attempt.may_be_lost:
                raise Broken(f"{name} was committed and is not there")
        elif attempt.acked_at is not None and not count and not attempt.may_be_lost:
            raise Broken(f"{name} was acknowledged at {attempt.acked_at:.3f} and is not there")
        if where is None:
            return
        place, found = where
        if place != (attempt.topic, attempt.queue_id):
            raise Broken(f"{name} is in {place}")
        if attempt.due_ms and found.store_ms < attempt.due_ms:
            raise Broken(f"{name} was delivered {attempt.due_ms - found.store_ms} ms early")
        is_at_its_place = attempt.is_half or attempt.due_ms or attempt.may_be_lost or attempt.offset == found.offset
        if attempt.acked_at is not None and not is_at_its_place:
            raise Broken(f"{name} was acknowledged at offset {attempt.offset} and is at {found.offset}")

    def _check_order(self) -> None:
        last: dict[Place, Attempt] = {}  # the one that was sent last of those that stand before
        for attempt in sorted(self.attempts.values(), key=lambda one: one.offset):
            if attempt.acked_at is None or attempt.is_half or attempt.due_ms or attempt.may_be_lost:
                continue
            later = last.setdefault((attempt.topic, attempt.queue_id), attempt)
            if attempt.acked_at < later.sent_at:
                raise Broken(f"{later.body!r} was sent after {attempt.body!r} was acknowledged, and stands before")
            if attempt.sent_at > later.sent_at:
                last[attempt.topic, attempt.queue_id] = attempt
