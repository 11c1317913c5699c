"""The results of the client's calls: immutable values that hold no connection."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gantry.model.message import StoredMessage
from gantry.model.route import MessageQueue


@dataclass(frozen=True, slots=True)
class SendResult:
    """A message that the broker has acknowledged: it is stored, under the configured policy.

    A batch is acknowledged as one; it begins at `queue_offset` and has one id for each message.
    """

    message_ids: tuple[str, ...]  # given by the producer, the same for every copy and retry
    offset_message_ids: tuple[str, ...]  # given by the broker; contain the message's log offset
    queue: MessageQueue
    queue_offset: int
    recall_handle: str = ""  # of a delayed message, for `Producer.recall`

    @property
    def message_id(self) -> str:
        """The id of the message; of a batch that of its first one."""
        return self.message_ids[0]


class PullStatus(Enum):
    """How a pull ended; the result always has the next offset."""

    FOUND = "messages"
    NO_NEW_MESSAGE = "nothing new until the time was up"
    NO_MATCH = "messages, but none that the filter lets through"
    OFFSET_ILLEGAL = "the offset lies outside the queue"


class ReadFrom(Enum):
    """Which member of a broker group a puller asks."""

    AUTO = "auto"  # the master, the slave that it suggests, a slave while it does not answer
    MASTER = "master"  # only the master
    SLAVE = "slave"  # a slave, or the master when no slave answers


@dataclass(frozen=True, slots=True)
class PullResult:
    """The answer to one pull."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: tuple[StoredMessage, ...] = ()
    suggested: int = 0  # id of the group's member to ask next; 0 is the master
    records: bytes = b""  # of a raw pull: the records of the log, one after the other


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """A group's progress in one queue."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    committed: int  # -1: the group never committed here

    @property
    def lag(self) -> int:
        """The number of stored messages that the group has not finished; all when it never committed."""
        return self.max_offset - max(self.committed, self.min_offset)
