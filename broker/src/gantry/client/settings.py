"""The settings of clients. A default is that of RocketMQ's client, or the comment says why it differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from gantry.client.hooks import ConsumeHook, SendHook
from gantry.client.outgoing import COMPRESS_OVER_BYTES
from gantry.errors import ConfigError
from gantry.model.names import group_fault
from gantry.transport.addresses import split_address, split_addresses
from gantry.wire.compression import Compression

# RocketMQ's delay levels 3 to 18: what a failed message waits for before it is tried again.
RETRY_LADDER_S = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)

# All delay levels: what a failed message waits for in a group that pops, as RocketMQ's proxy has it.
POP_LADDER_S = (1, 5, *RETRY_LADDER_S)


class StartFrom(Enum):
    """Where a group begins that has never committed an offset."""

    LAST = "CONSUME_FROM_LAST_OFFSET"  # new messages only; a young topic from its beginning
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Time-outs and limits of a producer. ConfigError for invalid values."""

    timeout_s: float = 10.0  # of one send with all its retries; RocketMQ gives up after 3 s, less than a restart takes
    attempt_timeout_s: float = 3.0  # of one attempt; then the outcome is unknown and another group is tried
    in_flight_max: int = 1024  # sends at the same time; others wait
    compress_over_bytes: int | None = COMPRESS_OVER_BYTES  # None: never
    compression: Compression = Compression.ZLIB  # the others need gantrymq[compression], and clients that read them
    hooks: tuple[SendHook, ...] = ()  # around every send; see `hooks`
    batches: bool = True  # sends at the same time to one queue are one request, see `gathering`; False: each is its own

    def __post_init__(self) -> None:
        check_numbers(self, above_zero=("timeout_s", "attempt_timeout_s", "in_flight_max"))
        if not isinstance(self.compression, Compression):
            raise ConfigError(
                f"compression is {self.compression!r}, expected a Compression, for instance Compression.ZLIB"
            )


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Start, limits and retries of a consumer. ConfigError for invalid values."""

    start_from: StartFrom = StartFrom.LAST
    start_timestamp_ms: int | None = None  # for TIMESTAMP; None means half an hour before the consumer starts
    broadcast: bool = False  # every member gets every message
    offsets_folder: str | None = None  # where a broadcasting member keeps its progress; None: in memory only
    concurrency: int = 20  # listeners running at the same time
    queue_messages_max: int = 1000  # unfinished messages of one queue
    queue_span_max: int = 2000  # offsets between a queue's first unfinished message and the next pull
    bytes_max: int = 64 << 20  # unfinished messages of all queues together; each queue may add one pull more
    pull_messages_max: int = 32
    pull_wait_s: float = 15.0
    pop_invisible_s: float = 60.0  # mode "pop": how long a message of a member that died stays invisible
    redeliveries_max: int | None = None  # then it is a dead letter; None: by the group's configuration
    retry_delays_s: tuple[float, ...] = RETRY_LADDER_S  # of local retries; the last one repeats
    commit_every_s: float = 5.0
    rebalance_every_s: float = 20.0
    handover_s: float = 1.0  # a queue that another member may still hold begins so much later; see `rebalance`
    hooks: tuple[ConsumeHook, ...] = ()  # around every call of the listener; see `hooks`
    stop_timeout_s: float = 10.0  # how long stop() waits for messages in work
    request_timeout_s: float | None = None  # of one request for routes or offsets; None: 3 s and 5 s

    def __post_init__(self) -> None:
        if not isinstance(self.start_from, StartFrom):
            raise ConfigError(f"start_from is {self.start_from!r}, expected a StartFrom, for instance StartFrom.FIRST")
        positive = "concurrency queue_messages_max queue_span_max bytes_max pull_messages_max commit_every_s"
        check_numbers(
            self,
            above_zero=(*positive.split(), "rebalance_every_s", "pop_invisible_s", *self._given("request_timeout_s")),
            not_negative=("pull_wait_s", "handover_s", "stop_timeout_s"),
        )
        if not self.retry_delays_s or min(self.retry_delays_s) < 0:
            raise ConfigError(
                f"retry_delays_s is {self.retry_delays_s!r}, expected one or more delays that are not negative"
            )

    def _given(self, name: str) -> tuple[str, ...]:
        return () if getattr(self, name) is None else (name,)


@dataclass(frozen=True, slots=True)
class OrderSettings:
    """Locks and pauses of an orderly consumer. ConfigError for invalid values."""

    suspend_s: float = 1.0  # pause of a queue after a failed message; RocketMQ's suspendCurrentQueueTimeMillis
    attempts_max: int | None = None  # then a message is a dead letter; None, as in RocketMQ: never
    lock_valid_s: float = 30.0  # how long a lock is valid after its request: half of the time that brokers keep it
    renew_every_s: float = 20.0  # RocketMQ's clients have the same two
    retry_every_s: float = 1.0  # for a lock that another member has

    def __post_init__(self) -> None:
        check_numbers(self, above_zero=("lock_valid_s", "renew_every_s", "retry_every_s"), not_negative=("suspend_s",))


def check_numbers(settings: object, above_zero: Sequence[str] = (), not_negative: Sequence[str] = ()) -> None:
    """Raise ConfigError that names the first of these fields that is too small."""
    for name in (*above_zero, *not_negative):
        given = getattr(settings, name)
        if not isinstance(given, (int, float)) or given < 0 or (name in above_zero and not given > 0):
            wanted = "a number above 0" if name in above_zero else "a number that is not negative"
            raise ConfigError(f"{name} is {given!r}, expected {wanted}")


def nameserver_list(nameserver: str | Sequence[str]) -> list[str]:
    """Return the addresses of a list or of RocketMQ's `a:1;b:2`; ConfigError when one is invalid, or there is none."""
    text = nameserver if isinstance(nameserver, str) else ";".join(nameserver)
    addresses = split_addresses(text)
    if not addresses:
        raise ConfigError("nameserver: expected host:port, or several parted by semicolons")
    for address in addresses:
        split_address(address)
    return addresses


def check_group(group: str) -> None:
    """Raise ConfigError when this is not a valid name of a group."""
    fault = group_fault(group)
    if fault is not None:
        raise ConfigError(fault)
