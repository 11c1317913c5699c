"""What the client gives back: values, never live objects."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gantry.model.message import StoredMessage
from gantry.model.route import MessageQueue


@dataclass(frozen=True, slots=True)
class SendResult:
    """A message that the broker has acknowledged: it keeps it, under the policy it is configured with.

    A batch is acknowledged as one; it begins at `queue_offset` and has one id per message.
    """

    message_ids: tuple[str, ...]  # given by the producer, the same for every copy and retry
    offset_message_ids: tuple[str, ...]  # given by the broker: where the message stands in its log
    queue: MessageQueue
    queue_offset: int
    recall_handle: str = ""  # what `Producer.recall` takes a delayed message back by

    @property
    def message_id(self) -> str:
        """The id of the message, of a batch's first one."""
        return self.message_ids[0]


class PullStatus(Enum):
    """How a pull ended; in every case the result says where to go on."""

    FOUND = "messages"
    NO_NEW_MESSAGE = "nothing new until the time was up"
    NO_MATCH = "messages, but none that the filter lets through"
    OFFSET_ILLEGAL = "the offset lies outside the queue"


class ReadFrom(Enum):
    """Which member of a broker group a puller asks."""

    AUTO = "auto"  # the master, the slave that it suggests, a slave while it does not answer
    MASTER = "master"  # nobody else
    SLAVE = "slave"  # a slave, the master where none answers


@dataclass(frozen=True, slots=True)
class PullResult:
    """The answer to one pull."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: tuple[StoredMessage, ...] = ()
    suggested: int = 0  # the id of the broker of the group that should be asked next; 0 is the master
    records: bytes = b""  # of a raw pull: the messages as they stand in the log, one after the other


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """How far a group has come in one queue."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    committed: int  # -1: the group never committed here

    @property
    def lag(self) -> int:
        """Messages that the group has not finished; all that are there when it never committed."""
        return self.max_offset - max(self.committed, self.min_offset)
