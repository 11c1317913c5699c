"""Retries of a failed send: on which group, after which pause, or not at all.

A group of the topic that was not tried in this round is tried at once.  When all have failed, or the caller selected
the queue, the pause doubles up to half a second.  A final refusal ends the trial.  The asyncio producer and the
blocking one use the same rules.
"""

from __future__ import annotations

from gantry.errors import ClosedError, GantryError, OutcomeUnknownError, RefusedError
from gantry.model.route import MessageQueue

_PAUSE_FIRST_S = 0.05
_PAUSE_LAST_S = 0.5  # with the wait after a failed connection (1 s) less than two seconds after a broker's restart


class Trial:
    """The results of the attempts of one send so far."""

    def __init__(self) -> None:
        self.groups = 1  # number of the topic's broker groups
        self.current = ""  # group of the present attempt
        self.failed_groups: set[str] = set()  # in this round; when all have failed, a new round begins
        self.is_first = True  # no attempt has failed
        self.queue: MessageQueue | None = None  # the one that was chosen for the next attempt
        self.may_go_on = True
        self.unknown: OutcomeUnknownError | None = None  # the last attempt that may have been carried out
        self.refusal: RefusedError | None = None  # the last refusal
        self._pause_s = 0.0
        self._last_pause_s = _PAUSE_FIRST_S / 2

    def failed(self, error: GantryError) -> None:
        """Note that an attempt has failed."""
        self.is_first = False
        self.queue = None
        if isinstance(error, OutcomeUnknownError):
            self.unknown = error
        elif isinstance(error, RefusedError):
            self.may_go_on = error.retriable
            self.refusal = error
        elif isinstance(error, ClosedError):
            self.may_go_on = False
        is_again = self.current in self.failed_groups  # the caller selected the queue
        self.failed_groups.add(self.current)
        is_round_over = len(self.failed_groups) >= self.groups
        if is_round_over:
            self.failed_groups.clear()
        self._pause_s = 0.0
        if is_again or is_round_over:
            self._last_pause_s = self._pause_s = min(_PAUSE_LAST_S, self._last_pause_s * 2)

    def verdict(self, error: GantryError) -> GantryError:
        """Return the error for the caller, where `error` was the last one.

        An unknown outcome is reported rather than any later error, and a refusal rather than the end of the time.
        """
        return self.unknown or self.refusal or error

    def pause_s(self) -> float:
        """Return how many seconds to wait; 0 while there is a group that was not tried in this round."""
        return self._pause_s
