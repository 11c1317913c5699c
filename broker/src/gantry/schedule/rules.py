"""Settings of delayed messages; in broker.conf: messageDelayLevel, timerWheelEnable, timerMaxDelaySec and
recallMessageEnable.
"""

from __future__ import annotations

from dataclasses import dataclass

from gantry.schedule import levels


@dataclass(frozen=True, slots=True)
class DelayRules:
    """Settings of delayed messages; all times are milliseconds."""

    levels_ms: tuple[int, ...] = levels.parse(levels.STANDARD)
    has_times: bool = True  # messages may ask for a time of delivery
    delay_max_ms: int = 3 * 86_400_000  # how far ahead such a time may be
    pending_max: int = 10_000_000  # how many such messages may wait
    is_recall_allowed: bool = True
