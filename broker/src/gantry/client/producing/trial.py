"""What to do after an attempt to send has failed: where next, after which pause, or not at all.

Other groups first: as long as the topic has a group that was not tried in this round, it is tried at
once.  When all have failed, or the caller had fixed the queue, the pause doubles up to half a second.  A
refusal for good ends the trial.  The asyncio producer and the blocking one both follow it.
"""

from __future__ import annotations

from gantry.errors import ClosedError, GantryError, OutcomeUnknownError, RefusedError

_PAUSE_FIRST_S = 0.05
_PAUSE_LAST_S = 0.5  # with the rest of an address that failed (1 s), less than two seconds after a broker's return


class Trial:
    """What the attempts of one send have taught so far."""

    def __init__(self) -> None:
        self.groups = 1  # broker groups that the topic has
        self.current = ""  # group of the running attempt
        self.failed_groups: set[str] = set()  # in this round; when all have failed, a new round begins
        self.may_go_on = True
        self.unknown: OutcomeUnknownError | None = None  # the last attempt that may have been carried out
        self.refusal: RefusedError | None = None  # the last one
        self._pause_s = 0.0
        self._last_pause_s = _PAUSE_FIRST_S / 2

    def failed(self, error: GantryError) -> None:
        """One attempt has failed."""
        if isinstance(error, OutcomeUnknownError):
            self.unknown = error
        elif isinstance(error, RefusedError):
            self.may_go_on = error.retriable
            self.refusal = error
        elif isinstance(error, ClosedError):
            self.may_go_on = False
        is_again = self.current in self.failed_groups  # the caller fixed the queue
        self.failed_groups.add(self.current)
        is_round_over = len(self.failed_groups) >= self.groups
        if is_round_over:
            self.failed_groups.clear()
        self._pause_s = 0.0
        if is_again or is_round_over:
            self._last_pause_s = self._pause_s = min(_PAUSE_LAST_S, self._last_pause_s * 2)

    def verdict(self, error: GantryError) -> GantryError:
        """What the caller is told when `error` was the last: a refusal says more than that the time was over, and an
        unknown outcome outweighs whatever came later.
        """
        return self.unknown or self.refusal or error

    def pause_s(self) -> float:
        """How long to wait: not at all while there is a group that was not tried in this round."""
        return self._pause_s
