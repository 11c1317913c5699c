"""Orderly pops without sockets: the parts of POP on a simulated disk, life after life.

    play = OrderPlay(Flush.SYNC)
    play.message(b"m0")
    play.pop(count=2)            # the messages of the answer; None while there is none
    play.ack(one)                # "" while there is no answer
    play.crash(rng)              # the disk after a power cut, and a new life on it

Only what is on the disk goes from life to life: the log, the consumer offsets and the document of orderly pops.
"""

from __future__ import annotations

import random
from typing import Any

from gantry.append.acks import AckLimits, Acks, flush_is_late
from gantry.append.admit import WriteGate
from gantry.clock import SteadyClock
from gantry.consume.filterdata import ConsumerFilters
from gantry.consume.pull import PullChecks
from gantry.leaves import frames, properties
from gantry.leaves.frames import Command
from gantry.metadata.clients import ClientLimits, Clients
from gantry.metadata.groups import Groups, GroupSettings
from gantry.metadata.offsets import Offsets
from gantry.metadata.starts import GroupStarts
from gantry.metadata.topics import Topics, TopicSettings
from gantry.model.subscription import GroupConfig
from gantry.model.topic import TopicConfig
from gantry.pop import parts as pop_parts
from gantry.pop.held import HeldLimits
from gantry.pop.service import PopContext, PopRules
from gantry.schedule.book import DelayBook
from gantry.schedule.waiting import WaitingCounts
from gantry.store import filenames
from gantry.store.background import InlineBackground
from gantry.store.opening import open_store
from gantry.store.settings import Flush, StoreSettings
from gantry.store.statefile import JsonState
from testkit.fake_connection import FakeConnection
from testkit.memory_state import MemoryState, SavedAtOnce
from testkit.popplay import BROKER, GROUP, TOPIC, Popped, ack_request, change_request, pop_request, popped
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk

HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
DLQ = f"%DLQ%{GROUP}"
INVISIBLE_MS = 10_000


class OrderPlay:
    """One broker's orderly pops, one life after the other."""

    def __init__(self, flush: Flush = Flush.SYNC, times_max: int = 16, **settings: int) -> None:
        self.clock = SimClock()
        self.disk = SimDisk()
        sizes = {"segment_bytes": 1 << 20, "queue_file_entries": 1000, "index_slots": 500, "index_entries": 5000}
        self.settings = StoreSettings(
            "/store",
            **sizes | settings,
            flush=flush,
            store_host=HOST,
            delete_hours=frozenset(),
            disk_used_max=2.0,
            disk_used_clean=2.0,
            disk_used_refuse=2.0,
        )
        self.times_max = times_max
        self._opaques = iter(range(1, 1 << 30))
        self.open()

    def open(self) -> None:
        """A new life on the disk."""
        self.disk.now_ms = self.clock.now_ms
        self.background = InlineBackground(at_once=self.settings.flush is Flush.ASYNC)
        self.steady = SteadyClock(self.clock)
        self.store = open_store(self.settings, self.disk, self.steady, self.background)
        self.steady.reach(self.store.latest_ms)
        self.store.confirm_locally()
        self.topics = Topics(MemoryState(), self.clock, TopicSettings(BROKER, "c"))
        self.topics.put(TopicConfig(TOPIC, read_queues=1, write_queues=1))
        self.topics.adopt(self.store.queues())
        groups = Groups(MemoryState(), self.clock, GroupSettings())
        groups.put(GroupConfig(GROUP, retry_times_max=self.times_max))
        self.offsets = Offsets(self._state("consumerOffset.json"), self.clock)
        if self.offsets.bound(self.store.next_queue_offset):
            self.offsets.file.save_now()  # as `broker.tables` does, before anything is served
        self.offsets.log_end = lambda: self.store.written.offset
        self.acks = Acks(self.store.confirmed, self.clock, AckLimits(5.0, 1 << 24), flush_is_late, None)
        clients = Clients(ClientLimits())
        filters = ConsumerFilters(MemoryState(), self.clock, lambda cause, text: None)
        context = PopContext(
            self.store,
            self.topics,
            groups,
            self.offsets,
            self.acks,
            WriteGate(),
            self.steady,
            PopRules(BROKER, "c"),
            lambda cause, text: None,
            GroupStarts(self.offsets, self.topics, self.store, self.store.settings.warm_bytes),
            SavedAtOnce(),
        )
        checks = PullChecks(self.topics, groups, clients, filters, "")
        chance, waiting = random.Random(1), WaitingCounts(self.store.reader, DelayBook(), self.topics, self.clock)
        state = self._state("consumerOrderInfo.json")
        self.parts = pop_parts.make(context, state, checks, chance, lambda call: call(), HeldLimits(), waiting)
        self.connection: Any = FakeConnection()
        for _ in self.parts.recover([]):
            pass

    def _state(self, name: str) -> JsonState:
        path = filenames.config("/store", name)
        return JsonState(path, self.disk, self.background.housekeeper, lambda path, error: None)

    def crash(self, rng: random.Random | None = None) -> None:
        """The power goes; any subset of what was not synced survives, or nothing of it without `rng`."""
        self.disk = self.disk.crash(rng) if rng is not None else self.disk.crash()
        self.open()

    def flush(self) -> None:
        """What waits for the disk gets it."""
        while self.background.step():
            pass

    def tick(self) -> None:
        """What the periodic jobs do."""
        self.parts.orderly.tick()
        for _ in self.parts.orderly.table.saving():
            pass
        for _ in self.offsets.saving():
            pass
        self.store.tick(self.clock.now_ms())

    def message(self, body: bytes) -> None:
        """Store one, durably."""
        text = properties.pack({"UNIQ_KEY": f"K{next(self._opaques)}"})
        traits, unique_key, keys, tags_code = properties.scan(text)
        self.store.append(
            [
                frames.Send(
                    topic=TOPIC,
                    body=body,
                    born_host=HOST,
                    properties=text,
                    traits=traits,
                    unique_key=unique_key,
                    keys=keys,
                    tags_code=tags_code,
                )
            ]
        )
        self.flush()

    def pop(self, count: int = 32, **fields: object) -> int:
        """Ask for messages in order; the number of the request."""
        fields = {"order": "true", "bornTime": self.clock.now_ms(), **fields}
        return self._ask(pop_request(count, INVISIBLE_MS, **fields), self.parts.pops.pop)

    def ack(self, one: Popped) -> int:
        """Acknowledge one."""
        return self._ask(ack_request(one), self.parts.acks.ack)

    def change(self, one: Popped, invisible_ms: int = 0) -> int:
        """Make one visible after this time."""
        return self._ask(change_request(one, invisible_ms), self.parts.acks.change)

    def _ask(self, command: Command, handler: Any) -> int:
        command.opaque = next(self._opaques)
        answer = handler(self.connection, command)
        if answer is not None:
            self.connection.write(frames.encode(answer))
        return command.opaque

    def answers(self) -> dict[int, Command]:
        """The answers that have come, by the number of their request."""
        return {reply.opaque: reply for reply in self.connection.take()}

    def taken(self, count: int = 32, **fields: object) -> list[Popped]:
        """Pop, wait for the answer, and return its messages."""
        opaque = self.pop(count, **fields)
        self.flush()
        reply = self.answers()[opaque]
        return popped(reply) if reply.code == 0 else []

    def bodies(self, topic: str) -> list[bytes]:
        """The bodies in queue 0 of a topic."""
        low, high = self.store.queue_range(topic, 0) or (0, 0)
        entries = [self.store.reader.entry(topic, 0, offset) for offset in range(low, high)]
        found = [self.store.reader.record(entry) for entry in entries if entry is not None]
        return [record.body for record in found if record is not None]
