"""Everything between a pull and its answer, over a real store on a simulated disk or a real folder."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from gantry.consume.filterdata import ConsumerFilters
from gantry.consume.handlers import PullHandlers, PullLimits
from gantry.consume.pull import SUBSCRIPTION_INLINE, PullChecks
from gantry.leaves import frames, properties
from gantry.metadata.clients import ClientLimits, Clients, Consumption, GroupClient
from gantry.metadata.commits import GroupCommits
from gantry.metadata.groups import Groups, GroupSettings
from gantry.metadata.offsets import Offsets
from gantry.metadata.topics import Topics, TopicSettings
from gantry.model.subscription import Subscription
from gantry.model.topic import TopicConfig
from gantry.store.background import InlineBackground
from gantry.store.disk import Disk
from gantry.store.opening import open_store
from gantry.store.settings import Flush, StoreSettings
from testkit.fake_connection import FakeConnection
from testkit.memory_state import MemoryState
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk

_HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")

SMALL = StoreSettings(
    root="/store",
    segment_bytes=64 << 10,
    queue_file_entries=1000,
    index_slots=64,
    index_entries=1000,
    flush=Flush.ASYNC,
    store_host=_HOST,
)


class PullPlay:
    """A topic T with four queues, a store, and the handlers; `pull` asks and `replies` looks at what came."""

    def __init__(
        self, settings: PullLimits | None = None, store: StoreSettings = SMALL, disk: Disk | None = None
    ) -> None:
        self.clock = SimClock()
        self.background = InlineBackground()
        # What is cold comes in when a test says so: cold.step().
        self.cold = InlineBackground(at_once=False)
        self.background.cold_reader = self.cold.cold_reader
        self.store = open_store(store, disk or SimDisk(), self.clock, self.background)
        self.store.confirm_locally()
        self.topics = Topics(MemoryState(), self.clock, TopicSettings("b", "c"))
        self.groups = Groups(MemoryState(), self.clock, GroupSettings())
        self.offsets = Offsets(MemoryState(), self.clock)
        self.offsets.log_end = lambda: self.store.written.offset
        self.commits = GroupCommits(self.offsets, self.store)
        self.clients = Clients(ClientLimits())
        self.complaints: list[str] = []
        self.filters = ConsumerFilters(MemoryState(), self.clock, lambda _, text: self.complaints.append(text))
        self.clients.on_beat(self.filters.heard)
        self.clients.on_change(self.filters.group_changed)
        self.checks = PullChecks(self.topics, self.groups, self.clients, self.filters, "127.0.0.1:10911")
        self.may_serve = True
        self.pulls = PullHandlers(
            self.store,
            self.checks,
            self.commits,
            self.clock,
            settings or PullLimits(),
            None,
            lambda: self.may_serve,
        )
        self.store.on_dispatched(self.pulls.held.on_dispatched)
        self.connection: Any = FakeConnection()
        self.topics.put(TopicConfig("T", read_queues=4, write_queues=4))

    def send(
        self,
        *bodies: str | bytes,
        topic: str = "T",
        queue_id: int = 0,
        tags: str = "",
        keys: str = "",
        pairs: dict[str, str] | None = None,
    ) -> list[int]:
        """Append messages in one run, all with these properties; their log offsets."""
        named = {"TAGS": tags, "KEYS": keys, "UNIQ_KEY": "uniq", **(pairs or {})}
        packed = properties.pack({name: value for name, value in named.items() if value})
        traits, unique_key, found_keys, tags_code = properties.scan(packed)
        sends = [
            frames.Send(
                topic=topic,
                queue_id=queue_id,
                body=body if isinstance(body, bytes) else body.encode(),
                properties=packed,
                traits=traits,
                unique_key=unique_key,
                keys=found_keys,
                tags_code=tags_code,
                born_host=_HOST,
            )
            for body in bodies
        ]
        self.store.append(sends)
        return [send.log_offset for send in sends]

    def subscribe(self, *subscriptions: Subscription, group: str = "g", model: str = "CLUSTERING") -> None:
        """A consumer of the group comes online."""
        self.groups.ensure(group)
        self.clients.register_consumer(
            FakeConnection("consumer"),  # type: ignore[arg-type]
            group,
            GroupClient("consumer", 0, 479, self.clock.monotonic()),
            Consumption("CONSUME_PASSIVELY", model, "CONSUME_FROM_LAST_OFFSET"),
            subscriptions,
        )

    def pull(self, *offsets: int, **fields: Any) -> list[frames.Command]:
        """One run of pulls with inline subscription to everything unless said otherwise; the replies that came."""
        defaults: dict[str, Any] = {
            "group": "g",
            "topic": "T",
            "sys_flag": SUBSCRIPTION_INLINE,
            "subscription": "*",
            "suspend_ms": 15_000,
        }
        run = [
            frames.Pull(opaque=100 + number, queue_offset=offset, **(defaults | fields))
            for number, offset in enumerate(offsets)
        ]
        self.pulls.pull_run(self.connection, run)
        return self.replies()

    def replies(self) -> list[frames.Command]:
        """What came since the last look."""
        replies: list[frames.Command] = self.connection.take()
        return replies

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass for held pulls."""
        self.clock.advance(milliseconds)
        for _ in self.pulls.held.sweep(self.clock.monotonic()):
            pass

    def close(self) -> None:
        """Close the store."""
        self.store.close()


def offsets_of(reply: frames.Command) -> tuple[int, int, int]:
    """The (next, min, max) that a reply carries."""
    return tuple(int(reply.ext[name]) for name in ("nextBeginOffset", "minOffset", "maxOffset"))  # type: ignore[return-value]


def bodies_of(records: bytes) -> list[str]:
    """The bodies of concatenated V1 records with IPv4 hosts."""
    found = []
    at = 0
    while at < len(records):
        (size,) = struct.unpack_from(">i", records, at)
        (length,) = struct.unpack_from(">i", records, at + 84)
        found.append(records[at + 88 : at + 88 + length].decode())
        at += size
    return found


def codes_of(replies: Sequence[frames.Command]) -> list[int]:
    """The response codes, in order."""
    return [reply.code for reply in replies]
