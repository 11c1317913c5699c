"""The file of `progress`: `config/delayOffset.json`, written once a second, a second behind.

Only progress of a durable log is written.  It is computed with the end of the log that it was derived from, and written
by a later `save`, when the log is flushed up to there.  Slaves get the same document.  Otherwise a slave that becomes
master after a power cut on all machines could count deliveries that are in no log.

A start reads the log from a place up to which everything is dispatched.  Records that were only written may be cut, and
then other records begin elsewhere.

When only the time has changed, nothing is written: a start finds out by itself, and an idle disk is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gantry.clock import Clock
from gantry.errors import StoreError
from gantry.metadata.state import State
from gantry.model.topic import DataVersion
from gantry.schedule.book import DelayBook
from gantry.schedule.progress import DeliveryProgress, read
from gantry.store.store import Store


class ProgressFile:
    """The saved document, and the one that is saved next.  Loop thread only."""

    def __init__(self, store: Store, state: State, book: DelayBook, clock: Clock) -> None:
        self._store = store
        self._state = state
        self._book = book
        self._clock = clock
        self._version = DataVersion()
        # What is saved next, how many were pending then, and how far the log has to be durable for it.
        self._next: tuple[DeliveryProgress, int, int] | None = None
        self._saved: tuple[DeliveryProgress, int] | None = None
        self._kept: dict[str, object] | None = None

    def load(self) -> DeliveryProgress:
        """Read the file at a start; StoreError when it is damaged or contradicts itself."""
        document = self._state.load()
        self._kept = None if document is None else dict(document)
        try:
            found = read(document)
            self._version = DataVersion.from_json((document or {}).get("dataVersion"))
        except ValueError as error:
            raise StoreError(
                f"delayOffset.json: {error}; restore it, or remove it to have the log read instead"
            ) from error
        return found

    def save(self) -> None:
        """Save the progress that is durable by now, and compute the next one."""
        store = self._store
        if self._next is not None:
            found, pending, log_end = self._next
            if store.flushed.offset < log_end:
                return
            news = replace(found, done=[]), pending
            if news == self._saved:
                self._state.retry()
            else:
                self._version = self._version.next(self._clock.now_ms())
                self._kept = self._document(found)
                self._state.save(self._kept)
                self._saved = news
        self._next = self._progress(), self._book.timer.pending, store.written.offset

    def save_now(self) -> None:
        """Save the document before returning; the log is durable as far as it is written."""
        self._kept = self._document(self._progress())
        self._state.save_now(self._kept)

    def follow(self, document: Mapping[str, object]) -> None:
        """Save the master's document."""
        self._state.save(document)

    def retry(self) -> None:
        """Save again what could not be saved."""
        self._state.retry()

    def document(self) -> dict[str, object] | None:
        """Return the document that was saved last; None before the first."""
        return self._kept

    def current(self) -> dict[str, object]:
        """Return the document of the present progress, which may not be durable yet."""
        return self._document(self._progress())

    def _document(self, progress: DeliveryProgress) -> dict[str, object]:
        return {"dataVersion": self._version.to_json(), **progress.to_document()}

    def _progress(self) -> DeliveryProgress:
        store = self._store
        return self._book.progress(self._clock.now_ms(), store.dispatched.offset, store.reader.log_start)
