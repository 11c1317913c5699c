"""Log lines about failed requests, at most one for each cause and minute.

A client that repeats a bad request ten thousand times a second must not fill the log, and the first line of a new cause
must not be lost among them.  The caller defines the cause, for example a code and an exception's type, or a name
server's address.  The next line of a cause says how many were left out.

A line may contain names that a client chose, so unprintable characters are escaped: a line stays one line.
"""

from __future__ import annotations

import logging

from gantry.clock import Clock

PERIOD_S = 60.0
# With more causes than this all are forgotten, so that each is logged again.
_CAUSES_MAX = 1000


class Complaints:
    """Logs each cause at most once a minute."""

    def __init__(self, logger: logging.Logger, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        self._said: dict[str, tuple[float, int]] = {}  # cause -> when, how many since

    def say(self, cause: str, text: str, error: BaseException | None = None, level: int = logging.WARNING) -> None:
        """Log the text unless the same cause was logged within the last minute; with the stack of `error` if given."""
        now = self._clock.monotonic()
        said_at, left_out = self._said.get(cause, (now - PERIOD_S, 0))
        if now - said_at < PERIOD_S:
            self._said[cause] = (said_at, left_out + 1)
            return
        if len(self._said) >= _CAUSES_MAX:
            self._said.clear()
        self._said[cause] = (now, 0)
        more = f" ({left_out} more of this kind since the last line)" if left_out else ""
        self._logger.log(level, "%s%s", _on_one_line(text), more, exc_info=error)


def _on_one_line(text: str) -> str:
    """Return the text with unprintable characters escaped."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)
