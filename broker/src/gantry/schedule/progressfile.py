"""The file of `progress`: `config/delayOffset.json`, written once a second, a second behind.

What is written speaks of a log that is durable: progress is taken now, with the end of the log that it was derived
from, and handed to the file by a later `save`, when the log is flushed up to there.  Slaves are told nothing else: one
that leads after everybody lost power has at least what this disk kept, and would take for delivered what nobody has.

The place in the log from which a start reads is one up to which everything is dispatched.  What was merely written may
be cut, and then other records begin elsewhere.

That time has passed, and nothing else, is no news: a start finds out by itself, and a quiet disk may sleep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gantry.clock import Clock
from gantry.errors import StoreError
from gantry.metadata.state import State
from gantry.model.topic import DataVersion
from gantry.schedule.book import DelayBook
from gantry.schedule.progress import Progress, read
from gantry.store.store import Store


class ProgressFile:
    """What is in it, and what will be.  Loop thread only."""

    def __init__(self, store: Store, state: State, book: DelayBook, clock: Clock) -> None:
        self._store = store
        self._state = state
        self._book = book
        self._clock = clock
        self._version = DataVersion()
        # What is saved next, how many were pending then, and how far the log has to be durable for it.
        self._next: tuple[Progress, int, int] | None = None
        self._saved: tuple[Progress, int] | None = None
        self._kept: dict[str, object] | None = None

    def load(self) -> Progress:
        """What the file says at a start; StoreError when that cannot be."""
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
        """Hand to the file what is durable by now, and look how far things are."""
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
        """Put the document on the disk before returning; the log is durable as far as it is written."""
        self._kept = self._document(self._progress())
        self._state.save_now(self._kept)

    def follow(self, document: Mapping[str, object]) -> None:
        """Keep what a master says."""
        self._state.save(document)

    def retry(self) -> None:
        """Try again what could not be saved."""
        self._state.retry()

    def document(self) -> dict[str, object] | None:
        """What was saved last, if anything was."""
        return self._kept

    def current(self) -> dict[str, object]:
        """How far things are now, for who looks."""
        return self._document(self._progress())

    def _document(self, progress: Progress) -> dict[str, object]:
        return {"dataVersion": self._version.to_json(), **progress.to_document()}

    def _progress(self) -> Progress:
        store = self._store
        return self._book.progress(self._clock.now_ms(), store.dispatched.offset, store.reader.log_start)
