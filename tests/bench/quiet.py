"""How quiet the machine was while something was measured.

A figure of a machine that did other work too is none.  So each measured interval knows how much of all cores was used
by processes that do not belong to the measurement, and how much the host took away (steal).  Kernel threads that write
what the servers wrote count as others, so a few percent are the servers' own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_TICKS_S = os.sysconf("SC_CLK_TCK")
OTHERS_MAX, STEAL_MAX = 0.10, 0.02


@dataclass(frozen=True)
class Noise:
    """Shares of all cores, 0 to 1, and the load average of the last minute when the interval began."""

    others: float
    steal: float
    load: float

    @property
    def is_marked(self) -> bool:
        """Whether a figure of this interval has to be read with care."""
        return self.others > OTHERS_MAX or self.steal > STEAL_MAX


class Watch:
    """The machine from now on; `pids` and this process with its children are the measurement's own."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = tuple(pids)
        self._load = os.getloadavg()[0]
        self._before = self._looked()

    def noise(self) -> Noise:
        """What the machine did since this watch was made."""
        total, busy, steal, own = (after - before for after, before in zip(self._looked(), self._before, strict=True))
        if total <= 0:
            return Noise(0.0, 0.0, self._load)
        return Noise(max(0.0, busy - own) / total, steal / total, self._load)

    def _looked(self) -> tuple[float, float, float, float]:
        """Seconds since the boot: of all cores, busy, stolen, and of our own processes."""
        fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        user, nice, system, idle, waiting, irq, softirq, steal = fields
        own = sum(cpu_s(pid) for pid in self._pids)
        times = os.times()
        own += times.user + times.system + times.children_user + times.children_system
        busy = (user + nice + system + irq + softirq) / _TICKS_S
        return busy + (idle + waiting + steal) / _TICKS_S, busy, steal / _TICKS_S, own


def cpu_s(pid: int) -> float:
    """User and system time of a process; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_S
