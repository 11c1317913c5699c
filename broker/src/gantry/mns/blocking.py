"""HTTP queues for programs without asyncio; threads may share an account and its queues.

    with BlockingAccount(AccountSettings("http://127.0.0.1:9407", "id", "secret")) as account:
        queue = account.queue("orders")
        queue.create()
        queue.send(b"...")
        for message in queue.receive(wait_s=20):
            queue.delete(message.handle)

Which calls are tried again after a lost answer stands in `queuecalls` and `messagecalls`; errors in `errors`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

from gantry.mns import messagecalls, queuecalls
from gantry.mns.blockingconnection import BlockingConnection
from gantry.mns.exchange import AccountSettings
from gantry.mns.values import (
    ChangedVisibility,
    NewMessage,
    QueueAttributes,
    QueueMessage,
    QueueStatus,
    StoredReceipt,
)  # fmt: skip

PAGE = 1000


class BlockingAccount:
    """One server and one user; it owns the connections, and its queues use them."""

    def __init__(self, settings: AccountSettings, connection: BlockingConnection | None = None) -> None:
        self.connection = connection or BlockingConnection(settings)

    def queue(self, name: str) -> BlockingQueue:
        """Return a queue of this name, which need not be there yet; ValueError for what is no name."""
        return BlockingQueue(self.connection, name)

    def queue_names(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of all queues that begin with `prefix`, in order."""
        marker = ""
        while True:
            page = self.connection.perform(queuecalls.list_page(prefix, marker, PAGE))
            yield from page.names
            marker = page.next_marker
            if not marker:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.close()


class BlockingQueue:
    """One queue; every method is one request."""

    def __init__(self, connection: BlockingConnection, name: str) -> None:
        self.name = queuecalls.checked_name(name)
        self._perform = connection.perform

    def create(self, attributes: QueueAttributes | None = None) -> bool:
        """Make the queue: True when it is new, False when it was there with equal attributes."""
        return self._perform(queuecalls.create(self.name, attributes or QueueAttributes()))

    def set_attributes(self, attributes: QueueAttributes) -> None:
        """Change the attributes that are not None."""
        self._perform(queuecalls.set_attributes(self.name, attributes))

    def status(self) -> QueueStatus:
        """Return attributes and counts."""
        return self._perform(queuecalls.get(self.name))

    def delete_queue(self) -> None:
        """Delete the queue with all its messages; one that is not there counts as deleted."""
        self._perform(queuecalls.delete(self.name))

    def send(self, body: str | bytes, delay_s: int | None = None, priority: int | None = None) -> StoredReceipt:
        """Store a message; OutcomeUnknownError when no answer came: it may be stored."""
        return self._perform(messagecalls.send(self.name, NewMessage(body, delay_s, priority)))

    def send_many(self, messages: Sequence[NewMessage]) -> tuple[StoredReceipt, ...]:
        """Store 1 to 16 messages; PartialSendError when some were refused."""
        return self._perform(messagecalls.send_many(self.name, messages))

    def receive(self, count: int = 1, wait_s: int | None = None) -> tuple[QueueMessage, ...]:
        """Lease up to `count` (1 to 16) messages, waiting up to `wait_s` (0 to 30) for the first; none: empty."""
        return self._perform(messagecalls.receive_many(self.name, count, wait_s))

    def peek(self, count: int = 1) -> tuple[QueueMessage, ...]:
        """Look at up to `count` (1 to 16) visible messages without leasing them."""
        return self._perform(messagecalls.peek_many(self.name, count))

    def delete(self, handle: str) -> None:
        """Delete a message; MessageNotExistError when the handle is void."""
        self._perform(messagecalls.delete(self.name, handle))

    def delete_many(self, handles: Sequence[str]) -> None:
        """Delete 1 to 16 messages; PartialDeleteError names the handles that were void."""
        self._perform(messagecalls.delete_many(self.name, handles))

    def change_visibility(self, handle: str, visibility_s: int) -> ChangedVisibility:
        """Let a message be visible `visibility_s` seconds from now; the old handle is void then."""
        return self._perform(messagecalls.change_visibility(self.name, handle, visibility_s))
