"""On what terms a group works, as its pods carry them: what a failover loop has to know of members as they are.

While a change is rolled out some members run on the former terms.  Anyone who watches over the group goes by the
weakest of all: he waits as long as the most patient of them, and takes nobody for silenced whom only the new terms
silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gantry.failover.timers import Timers, fitting
from gantry_operator.api.brokercluster import Brokers

_TEXT = re.compile(r"(sync|async)/(\d{1,2})/(\d{1,4}(?:\.\d{1,3})?)s/(\d{1,4})s", re.ASCII)


@dataclass(frozen=True, slots=True)
class Terms:
    """`sync/2/5s/15s` as text."""

    is_sync: bool
    min_in_sync: int
    suspect_after_s: float
    lease_s: int

    def __str__(self) -> str:
        return f"{'sync' if self.is_sync else 'async'}/{self.min_in_sync}/{self.suspect_after_s:g}s/{self.lease_s}s"

    @property
    def timers(self) -> Timers:
        """How patient to be."""
        return fitting(self.suspect_after_s, self.lease_s)


def terms_of(brokers: Brokers) -> Terms:
    """Those that are wanted."""
    promise, timers = brokers.promise, brokers.failover.timers
    return Terms(promise.is_sync, promise.min_in_sync, timers.suspect_after_s, timers.lease_s)


def parse_terms(text: str) -> Terms | None:
    """None for what is none; a pod of an older operator has none."""
    found = _TEXT.fullmatch(text)
    return Terms(found[1] == "sync", int(found[2]), float(found[3]), int(found[4])) if found else None


def weakest(wanted: Terms, found: Iterable[Terms | None]) -> Terms:
    """Of all of them; somebody whose terms are not known may have acknowledged alone."""
    every = [wanted, *found]
    known = [each for each in every if each is not None]
    return Terms(
        len(known) == len(every) and all(each.is_sync for each in known),
        min(each.min_in_sync for each in known),
        max(each.suspect_after_s for each in known),
        max(each.lease_s for each in known),
    )
