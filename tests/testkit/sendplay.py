"""The way into the log without sockets: real tables and a real store on a simulated disk, one fake connection."""

from __future__ import annotations

from gantry.append.acks import AckLimits, Acks, flush_is_late
from gantry.append.admit import Admission, MessageLimits, WriteGate
from gantry.append.batch import Appender, MessageStamp
from gantry.clock import SteadyClock
from gantry.errors import DiskFullError
from gantry.leaves import frames, properties
from gantry.metadata.groups import Groups, GroupSettings
from gantry.metadata.topics import Topics, TopicSettings
from gantry.produce.send import SendHandler
from gantry.schedule.intake import DelayIntake
from gantry.schedule.rules import DelayRules
from gantry.store.background import InlineBackground
from gantry.store.opening import open_store
from gantry.store.settings import Flush, StoreSettings
from gantry.transaction.intake import HalfIntake
from testkit.fake_connection import FakeConnection
from testkit.memory_state import MemoryState
from testkit.scannedruns import hold_to_it
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk

HOST = bytes([10, 0, 0, 9]) + (10911).to_bytes(4, "big")


class SendPlay:
    """Everything from admission to acknowledgement; `flush()` lets the disk get on under SYNC_FLUSH."""

    def __init__(
        self, flush: Flush = Flush.ASYNC, limits: MessageLimits | None = None, batch_messages_max: int = 100
    ) -> None:
        self.clock = SimClock()
        self.disk = SimDisk()
        self.background = InlineBackground(at_once=flush is Flush.ASYNC)
        settings = StoreSettings("/store", 1 << 20, 100, 100, 400, flush, store_host=HOST)
        self.store = open_store(settings, self.disk, self.clock, self.background)
        self.store.confirm_locally()
        hold_to_it(self.store)
        self.topics = Topics(MemoryState(), self.clock, TopicSettings("b", "c"))
        self.groups = Groups(MemoryState(), self.clock, GroupSettings())
        self.gate = WriteGate()
        self.marks = MessageStamp("c", "r", HOST)
        self.limits = limits or MessageLimits(1000, self.marks.properties_bytes_max)
        self.admission = Admission(self.topics, self.groups, self.gate, self.limits, "b")
        self.topics.on_change(self.admission.topic_changed)
        self.acks = Acks(self.store.confirmed, self.clock, AckLimits(5.0, 10_000), flush_is_late, None)
        self._keys = 0
        self.appender = Appender(self.store, self.acks, self.gate, self.marks, self._unique_key)
        self.plain_groups: list[str] = []  # who sent what is no half
        self.delays = DelayIntake(SteadyClock(self.clock), DelayRules(), lambda: 0, "b")
        intake = HalfIntake(lambda: 0, 1, self.plain_groups.append)
        self.sending = SendHandler(self.admission, self.appender, batch_messages_max, intake, self.delays)
        self.connection = FakeConnection()

    def send(self, *sends: frames.Send) -> None:
        """One wake-up's run."""
        self.sending.send_run(self.connection, list(sends))  # type: ignore[arg-type]
        self.sending.append_gathered()

    def unanswered(self) -> list[frames.Send]:
        """What still wants an answer after something raised."""
        return [send for _, sends in self.sending.unanswered() for send in sends]

    def codes(self) -> list[int]:
        """The codes of the replies since the last call."""
        return [reply.code for reply in self.connection.take()]

    def flush(self) -> None:
        """What waits for the disk gets it."""
        while self.background.step():
            pass

    def fill_disk(self) -> None:
        """From now on there is no room for anything."""

        def append(*_: object, **__: object) -> int:
            raise DiskFullError("No space left on device")

        self.store.append = append  # type: ignore[method-assign]

    def stored(self, topic: str, queue_id: int = 0) -> list[bytes]:
        """The bodies that consumers of a queue can see."""
        found: list[bytes] = []
        for offset in range(self.store.next_queue_offset(topic, queue_id)):
            entry = self.store.reader.entry(topic, queue_id, offset)
            record = None if entry is None else self.store.reader.record_at(entry[0])
            if record is not None:
                found.append(bytes(record.body))
        return found

    def _unique_key(self) -> str:
        self._keys += 1
        return f"KEY{self._keys}"


_opaques = iter(range(1, 1 << 30))


def message(
    topic: str = "orders", body: bytes = b"body", pairs: dict[str, str] | None = None, **fields: object
) -> frames.Send:
    """A send as it comes out of `frames.decode`, with the template's name in it."""
    packed = properties.pack({"UNIQ_KEY": "u"} if pairs is None else pairs)
    return as_decoded(frames.Send(topic=topic, body=body, properties=packed, **fields))  # type: ignore[arg-type]


def as_decoded(send: frames.Send) -> frames.Send:
    """Fill in what decode finds out."""
    send.traits, send.unique_key, send.keys, send.tags_code = properties.scan(send.properties)
    send.opaque = next(_opaques)
    send.code = send.code or 310
    send.rpc_flag = 0
    send.version = send.version or 479
    send.default_topic = send.default_topic or "TBW102"
    return send
