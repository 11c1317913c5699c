"""The terms of a group, as its pods carry them: what a failover loop has to know of the members that run.

While a change is rolled out some members run on the former terms.  The failover loop uses the weakest of all: it waits
for the longest lease, and assumes that a member acknowledges alone if any terms allow that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gantry.replication.timers import Timers, derive_timers
from gantry_operator.api.brokercluster import Brokers

_TEXT = re.compile(r"(sync|async)/(\d{1,2})/(\d{1,4}(?:\.\d{1,3})?)s/(\d{1,4})s", re.ASCII)


@dataclass(frozen=True, slots=True)
class Terms:
    """Replication mode, smallest in-sync set, suspicion time and lease; `sync/2/5s/15s` as text."""

    is_sync: bool
    min_in_sync: int
    suspect_after_s: float
    lease_s: int

    def __str__(self) -> str:
        return f"{'sync' if self.is_sync else 'async'}/{self.min_in_sync}/{self.suspect_after_s:g}s/{self.lease_s}s"

    @property
    def timers(self) -> Timers:
        """Return the timers of a failover loop for these terms."""
        return derive_timers(self.suspect_after_s, self.lease_s)


def terms_of(brokers: Brokers) -> Terms:
    """Return the terms of a specification."""
    promise, timers = brokers.promise, brokers.failover.timers
    return Terms(promise.is_sync, promise.min_in_sync, timers.suspect_after_s, timers.lease_s)


def parse_terms(text: str) -> Terms | None:
    """Parse terms from text; None when the text is not valid, as on a pod of an older operator."""
    found = _TEXT.fullmatch(text)
    return Terms(found[1] == "sync", int(found[2]), float(found[3]), int(found[4])) if found else None


def weakest(wanted: Terms, found: Iterable[Terms | None]) -> Terms:
    """Return the weakest terms of all; a member with unknown terms counts as one that may acknowledge alone."""
    every = [wanted, *found]
    known = [each for each in every if each is not None]
    return Terms(
        len(known) == len(every) and all(each.is_sync for each in known),
        min(each.min_in_sync for each in known),
        max(each.suspect_after_s for each in known),
        max(each.lease_s for each in known),
    )
