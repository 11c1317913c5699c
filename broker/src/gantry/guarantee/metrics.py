"""What /metrics of a resend process says, in Prometheus's text format.

What is open, due or a case for a person is of the database, so every process says the same: take the maximum over
processes.  Counters are its own: take the sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from gantry.clock import Clock
from gantry.guarantee.resending import Backlog, ResendCounts

CASES_MAX = 10_000  # counted of one group and reason
_GROUPS_MAX = 1000
_RESULTS = ("sent", "refused", "unknown", "postponed")
FAMILIES = {
    "gantry_guarantee_passes_total": ("counter", "Passes of this process by kind and result."),
    "gantry_guarantee_last_pass_timestamp_seconds": ("gauge", "When the last good pass of resends ended; 0: none did."),
    "gantry_guarantee_resends_total": ("counter", "Messages that this process sent again, by result."),
    "gantry_guarantee_open": ("gauge", "Messages that a group has not confirmed."),
    "gantry_guarantee_due": ("gauge", "Those of them whose time to be confirmed is over."),
    "gantry_guarantee_oldest_seconds": ("gauge", "Age of the oldest message that a group has not confirmed."),
    "gantry_guarantee_cases": ("gauge", f"Messages for a person to look at, by reason; at most {CASES_MAX}."),
    "gantry_guarantee_told_total": ("counter", "Messages of which this process told people by every channel."),
    "gantry_guarantee_untold": ("gauge", "Messages that wait for a channel that does not take them."),
    "gantry_guarantee_channel_failures_total": ("counter", "Digests that a channel did not take."),
}


class Told(Protocol):
    """What a teller counts."""

    told: int
    failures: dict[str, int]

    @property
    def waiting(self) -> int:
        """Cases that wait for a channel."""
        ...


class GuaranteeMetrics:
    """Makes the text."""

    def __init__(self, teller: Told, clock: Clock) -> None:
        self._teller = teller
        self._clock = clock
        self._results = dict.fromkeys(_RESULTS, 0)
        self._passes = {("resend", "good"): 0, ("resend", "failed"): 0, ("people", "failed"): 0}
        self._last_ms = 0
        self._backlog: Sequence[Backlog] = ()
        self._cases: dict[tuple[str, str], int] = {}

    def passed(self, counts: ResendCounts, backlog: Sequence[Backlog]) -> None:
        """Count a good pass of resends."""
        for name in _RESULTS:
            self._results[name] += getattr(counts, name)
        self._backlog, self._last_ms = backlog[:_GROUPS_MAX], self._clock.now_ms()
        self._passes["resend", "good"] += 1

    def failed(self, kind: str) -> None:
        """Count a pass that failed."""
        self._passes[kind, "failed"] += 1

    def counted(self, group: str, reason: str, count: int) -> None:
        """Note how many cases of a reason a group has."""
        if len(self._cases) < 4 * _GROUPS_MAX or (group, reason) in self._cases:
            self._cases[group, reason] = count

    def text(self) -> bytes:
        """Return all metrics as they are now."""
        now_ms, found = self._clock.now_ms(), self._teller
        groups = {f'{{consumer_group="{_label(one.consumer_group)}"}}': one for one in self._backlog}
        values: dict[str, Mapping[str, float]] = {
            "gantry_guarantee_passes_total": {
                f'{{kind="{kind}",result="{result}"}}': count for (kind, result), count in self._passes.items()
            },
            "gantry_guarantee_last_pass_timestamp_seconds": {"": self._last_ms / 1000},
            "gantry_guarantee_resends_total": {f'{{result="{name}"}}': n for name, n in self._results.items()},
            "gantry_guarantee_open": {labels: one.deliveries for labels, one in groups.items()},
            "gantry_guarantee_due": {labels: one.due for labels, one in groups.items()},
            "gantry_guarantee_oldest_seconds": {
                labels: max(0, now_ms - one.oldest_ms) / 1000 for labels, one in groups.items()
            },
            "gantry_guarantee_cases": {
                f'{{consumer_group="{_label(group)}",reason="{reason}"}}': count
                for (group, reason), count in sorted(self._cases.items())
            },
            "gantry_guarantee_told_total": {"": found.told},
            "gantry_guarantee_untold": {"": found.waiting},
            "gantry_guarantee_channel_failures_total": {
                f'{{channel="{name}"}}': count for name, count in found.failures.items()
            },
        }
        lines: list[str] = []
        for name, (kind, text) in FAMILIES.items():
            lines.extend((f"# HELP {name} {text}", f"# TYPE {name} {kind}"))
            lines.extend(f"{name}{labels} {value:.15g}" for labels, value in values[name].items())
        return ("\n".join(lines) + "\n").encode()


def _label(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
