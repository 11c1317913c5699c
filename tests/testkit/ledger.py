"""What was asked of a broker or a store, what it promised, and whether what is found afterwards keeps the promise.

`LogLedger` stands beside a store: it knows every message in log order, up to where the disk has it for certain,
and after each recovery it compares and takes over the store's view.  `AckLedger` stands beside a broker process and
knows only what a producer knows: sent, acknowledged with a place, refused, or never answered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple


class Kept(NamedTuple):
    """One message as the log has it; bodies are unique within a test."""

    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    keys: bytes


class LogLedger:
    """The messages of one log, in order."""

    def __init__(self) -> None:
        self.known: list[Kept] = []
        self.safe = 0
        """How many of them must survive anything."""
        self.returned = 0
        """How many an append() that returned has put there: they must survive the death of the process."""
        self._ends: list[int] = []
        self._durable_end = 0
        self._next: defaultdict[tuple[str, int], int] = defaultdict(int)

    def attempt(self, topic: str, queue_id: int, body: bytes, keys: bytes) -> Kept:
        """An append of this message begins: it may be found from now on."""
        kept = Kept(topic, queue_id, self._next[topic, queue_id], body, keys)
        self._next[topic, queue_id] += 1
        self.known.append(kept)
        return kept

    def take_back(self, count: int) -> None:
        """The last `count` attempts were refused: they must never be found."""
        for kept in self.known[len(self.known) - count :]:
            self._next[kept.topic, kept.queue_id] -= 1
        del self.known[len(self.known) - count :]

    def appended(self, log_ends: Iterable[int]) -> None:
        """The oldest attempts without a place ended at these log offsets."""
        self._ends.extend(log_ends)
        assert len(self._ends) <= len(self.known)
        self.durable(self._durable_end)

    def durable(self, log_offset: int) -> None:
        """The store says that its disk has everything below this offset."""
        self._durable_end = max(self._durable_end, log_offset)
        while self.safe < len(self._ends) and self._ends[self.safe] <= self._durable_end:
            self.safe += 1

    def all_written(self) -> None:
        """Only the process dies: what append() has returned for must be found."""
        self.safe = max(self.safe, self.returned)

    def compare(self, found: list[Kept]) -> None:
        """Every safe message is there, and what is there is a prefix of what was appended."""
        for number, (is_found, expected) in enumerate(zip(found, self.known, strict=False)):
            assert is_found == expected, f"record {number} is {is_found}, appended was {expected}"
        assert len(found) <= len(self.known), f"never appended, or refused: {found[len(self.known):]}"
        missing = self.known[len(found) : self.safe]
        assert not missing, f"{self.safe} were durable, {len(found)} are there; first missing: {missing[0]}"

    def recovered(self, found: list[Kept], log_ends: list[int]) -> None:
        """After compare(): this is the log now, and recovery has promised that it stays."""
        self.known = list(found)
        self._ends = list(log_ends)
        self._durable_end = log_ends[-1] if log_ends else 0
        self.safe = self.returned = len(found)
        self._next.clear()
        for kept in found:
            self._next[kept.topic, kept.queue_id] = kept.queue_offset + 1

    def queues(self) -> dict[tuple[str, int], list[int]]:
        """For each queue the numbers (in log order) of its messages."""
        found: dict[tuple[str, int], list[int]] = {}
        for number, kept in enumerate(self.known):
            found.setdefault((kept.topic, kept.queue_id), []).append(number)
        return found


class Place(NamedTuple):
    """Where a broker said that a message is."""

    topic: str
    queue_id: int
    queue_offset: int


class AckLedger:
    """Messages by their bodies, which are unique within a test."""

    def __init__(self) -> None:
        self.sent: dict[bytes, tuple[str, int]] = {}
        self.acked: dict[bytes, Place] = {}
        self.refused: set[bytes] = set()

    def send(self, topic: str, queue_id: int, body: bytes) -> None:
        """About to be sent; called in the order of sending of each connection."""
        assert body not in self.sent
        self.sent[body] = (topic, queue_id)

    def ack(self, body: bytes, place: Place) -> None:
        """SEND_OK came."""
        assert body in self.sent and body not in self.acked
        self.acked[body] = place

    def refuse(self, body: bytes) -> None:
        """A code other than success and than 'outcome unknown' came."""
        self.refused.add(body)

    def check(self, found: dict[tuple[str, int], list[tuple[int, bytes]]]) -> None:
        """`found`: for each queue its (queue offset, body) in the order of the queue.

        Every acknowledged message is in its place; nothing is there twice, unasked or in spite of a refusal;
        queue offsets have no holes.
        """
        places: dict[Place, bytes] = {}
        for (topic, queue_id), messages in found.items():
            offsets = [offset for offset, _ in messages]
            assert offsets == list(range(offsets[0], offsets[0] + len(offsets))) if offsets else True, (topic, queue_id)
            for offset, body in messages:
                assert self.sent.get(body) == (topic, queue_id), f"never sent to {topic}/{queue_id}: {body[:40]!r}"
                assert body not in self.refused, f"refused, and there all the same: {body[:40]!r}"
                places[Place(topic, queue_id, offset)] = body
        assert len(set(places.values())) == len(places), "a message is there twice"
        missing = [(body[:40], place) for body, place in self.acked.items() if places.get(place) != body]
        assert not missing, f"acknowledged, not in their place: {len(missing)} of {len(self.acked)}, e.g. {missing[:3]}"
