"""One count over queues, groups and clients, shared by many metrics.

Many families need the progress of each group and the end of each queue.  So these are read once for each scrape, in
slices, and the families use the result.  Numbers of one census may be a moment apart; deleted topics and groups are
missing in the next one, with all their series.

The waiting time of a group's first unfinished message needs a read of its record, perhaps from the disk.  So it is read
in one queue of each topic only, the one in which most messages wait, and again only when the group has moved.  The cold
reader reads it; a census that does not wait for a slow disk shows what was known before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gantry.model import names
from gantry.model.subscription import CONSUME_ACTIVELY, CONSUME_POP
from gantry.store.coldplaces import stored_ms_if_read
from gantry.wire.codes import Language

if TYPE_CHECKING:
    from gantry.clock import Clock
    from gantry.metadata.clients import Clients
    from gantry.metadata.groups import Groups
    from gantry.metadata.offsets import Offsets
    from gantry.metadata.topics import Topics
    from gantry.store.keysearch import Begin, Steps
    from gantry.store.store import Store

_QUEUES_A_SLICE = 64
_CLIENTS_A_SLICE = 256
_LANGUAGES = frozenset(Language)
_MODES = {CONSUME_ACTIVELY: "pull", CONSUME_POP: "pop"}  # other types are `push`


class GroupBacklog(NamedTuple):
    """A group's progress in a topic."""

    group: str
    topic: str
    finished: int  # sum of its committed offsets
    behind: int
    waited_s: float  # since its first unfinished message was stored; 0 when there is none
    members: int
    is_broadcasting: bool

    @property
    def is_retry(self) -> bool:
        """Whether the topic holds the group's own redeliveries."""
        return names.is_retry_topic(self.topic)

    @property
    def is_dead(self) -> bool:
        """Whether the topic holds the group's dead letters."""
        return names.is_dlq_topic(self.topic)


class _Waiting(NamedTuple):
    """A message that a group has not finished: generation of its topic, queue and queue offset; its store time."""

    place: tuple[int, int, int]
    stored_ms: int


class Client(NamedTuple):
    """The labels by which clients are counted; the group is empty for producers."""

    group: str
    language: str
    version: str
    mode: str


class Census:
    """The numbers of the last census; one object for each broker."""

    def __init__(
        self, store: Store, topics: Topics, groups: Groups, offsets: Offsets, clients: Clients, clock: Clock
    ) -> None:
        self.ends: dict[str, int] = {}  # by topic: number of messages since its creation
        self.standings: list[GroupBacklog] = []
        self.producers: dict[Client, int] = {}
        self.consumers: dict[Client, int] = {}
        self.stats = store.stats()
        self._waiting: dict[tuple[str, str], _Waiting] = {}  # by group and topic
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._clock = clock

    def take(self) -> Iterator[Begin | None]:
        """Count again; yields None so that other tasks may run, and what begins a read of the disk that may be waited
        for.
        """
        self.stats = self._store.stats()
        yield from self._take_ends()
        yield from self._take_standings()
        yield from self._take_producers()
        yield from self._take_consumers()

    def _take_ends(self) -> Iterator[None]:
        ends: dict[str, int] = {}
        for number, (topic, queue_id) in enumerate(list(self._store.queues()), 1):
            ends[topic] = ends.get(topic, 0) + self._store.next_queue_offset(topic, queue_id)
            if number % _QUEUES_A_SLICE == 0:
                yield
        self.ends = ends

    def _take_standings(self) -> Iterator[Begin | None]:
        found = []
        keys = self._offsets.keys()
        for key in keys:
            topic, _, group = key.partition("@")
            if self._topics.get(topic) is not None and self._groups.get(group) is not None:
                found.append((yield from self._standing(group, topic)))
                yield None
        self.standings = found
        behind = {(one.group, one.topic) for one in found if one.behind}
        self._waiting = {key: waiting for key, waiting in self._waiting.items() if key in behind}

    def _standing(self, group: str, topic: str) -> Steps[GroupBacklog]:
        """Return how far a group is behind in a topic.  A queue that it has not begun counts whole, as in LIST_LAG."""
        finished = behind = most = 0
        first = (0, 0)
        config = self._topics.get(topic)
        committed = self._offsets.of(group, topic)
        for queue_id in {*committed, *range(0 if config is None else config.read_queues)}:
            low, high = self._store.queue_range(topic, queue_id) or (0, committed.get(queue_id, 0))
            offset = committed.get(queue_id, low)
            finished += offset if queue_id in committed else 0
            behind += max(0, high - offset)
            if high - offset > most:
                most, first = high - offset, (queue_id, max(low, offset))
            if queue_id % _QUEUES_A_SLICE == _QUEUES_A_SLICE - 1:
                yield None
        stored_ms = (yield from self._waiting_since(group, topic, *first)) if most else None
        waited_s = 0.0 if stored_ms is None else max(0, self._clock.now_ms() - stored_ms) / 1000
        online = self._clients.consumer_group(group)
        members = 0 if online is None else len(online.members)
        is_broadcasting = online is not None and online.consumption.is_broadcasting
        return GroupBacklog(group, topic, finished, behind, waited_s, members, is_broadcasting)

    def _waiting_since(self, group: str, topic: str, queue_id: int, offset: int) -> Steps[int | None]:
        """Return the store time of this message, or of the group's one before while the disk does not answer."""
        known, place = self._waiting.get((group, topic)), (self._store.generations.of(topic), queue_id, offset)
        if known is not None and known.place == place:
            return known.stored_ms
        stored_ms = yield from stored_ms_if_read(self._store, topic, queue_id, offset)
        if stored_ms is None:
            return None if known is None else known.stored_ms
        self._waiting[group, topic] = _Waiting(place, stored_ms)
        return stored_ms

    def _take_producers(self) -> Iterator[None]:
        counts: dict[Client, int] = {}
        looked = 0
        for group in self._clients.producer_groups():
            for member in list(self._clients.producers(group).values()):
                _count(counts, Client("", _language(member.language), str(member.version), ""))
                looked += 1
                if looked % _CLIENTS_A_SLICE == 0:
                    yield
        self.producers = counts

    def _take_consumers(self) -> Iterator[None]:
        counts: dict[Client, int] = {}
        looked = 0
        for group in list(self._clients.consumer_groups()):
            mode = _MODES.get(group.consumption.consume_type, "push")
            for member in list(group.members.values()):
                _count(counts, Client(group.name, _language(member.language), str(member.version), mode))
                looked += 1
                if looked % _CLIENTS_A_SLICE == 0:
                    yield
        self.consumers = counts


def _count(counts: dict[Client, int], client: Client) -> None:
    counts[client] = counts.get(client, 0) + 1


def _language(number: int) -> str:
    return (Language(number) if number in _LANGUAGES else Language.OTHER).name.lower()
