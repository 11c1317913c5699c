"""Numbers on the command line: each has bounds, and an error names them.

`Number` and `Whole` are used as `type` of an argparse option, so that a number out of its bounds ends the command with
exit code 2 before any request is sent.  "nan" and "inf" are out of all bounds.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

INT64_MAX = (1 << 63) - 1
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Number:
    """A number from `low` to `high`; with `is_above` greater than `low`."""

    low: float
    high: float
    is_above: bool = False

    def __call__(self, text: str) -> float:
        """Return the number; ArgumentTypeError that names the bounds."""
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not self.low <= value <= self.high or (self.is_above and value == self.low):
            start = f"more than {self.low:g}" if self.is_above else f"{self.low:g}"
            raise argparse.ArgumentTypeError(f"{text[:40]!r}: expected a number from {start} to {self.high:g}")
        return value


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number from `low` to `high`."""

    low: int
    high: int = INT64_MAX

    def __call__(self, text: str) -> int:
        """Return the number; ArgumentTypeError that names the bounds."""
        try:
            value = int(text)
        except ValueError:
            value = self.low - 1
        if not self.low <= value <= self.high:
            bounds = f"of at least {self.low}" if self.high == INT64_MAX else f"from {self.low} to {self.high}"
            raise argparse.ArgumentTypeError(f"{text[:40]!r}: expected a whole number {bounds}")
        return value
