"""Unique message ids.  A producer gives each message one before it sends; a broker gives one if it is missing.

    ip 4|16, process id i16, salt i32, milliseconds since the first of the month i32, counter i16

as upper-case hexadecimal (RocketMQ's MessageClientIDSetter).  RocketMQ's salt is a class loader's hash, ours is
random: containers often share an address and a process id, and their ids must differ all the same.
A retry keeps its id, so a message that comes twice can be recognised.

Ids of one object are unique: its milliseconds never go back and its counter goes round only once in
65 536 ids, many more than Python makes in a millisecond.
"""

from __future__ import annotations

from datetime import UTC, datetime

from gantry.clock import Clock

_COUNTER_DIGITS = 4
_TAKEN = 1024


class UniqueIds:
    """Gives out ids; one object per producer."""

    def __init__(self, ip: bytes, process_id: int, salt: int, clock: Clock) -> None:
        origin = ip + (process_id & 0xFFFF).to_bytes(2, "big") + (salt & 0xFFFFFFFF).to_bytes(4, "big")
        self._prefix = origin.hex().upper()
        self._clock = clock
        self._month_start_ms = 0
        self._month_end_ms = 0
        self._last_ms = 0
        self._counter = 0

    def next(self) -> str:
        """The next id: 32 characters with an IPv4 address, 56 with an IPv6 one."""
        now_ms = self._clock.now_ms()
        if now_ms < self._last_ms:
            now_ms = self._last_ms
        self._last_ms = now_ms
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._find_month(now_ms)
        self._counter = (self._counter + 1) & 0xFFFF
        return f"{self._prefix}{now_ms - self._month_start_ms:08X}{self._counter:04X}"

    def take(self, count: int) -> list[str]:
        """Return `count` ids of the form that `next` returns; each thousand has its own millisecond."""
        found: list[str] = []
        while len(found) < count:
            head = self.next()[:-_COUNTER_DIGITS]
            following = range(self._counter, self._counter + min(_TAKEN, count - len(found)))
            found += [f"{head}{number & 0xFFFF:04X}" for number in following]
            self._counter = following[-1] & 0xFFFF
            self._last_ms += 1
        return found

    def _find_month(self, now_ms: int) -> None:
        first = datetime.fromtimestamp(now_ms / 1000, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
        self._month_start_ms = int(first.timestamp()) * 1000
        self._month_end_ms = int(following.timestamp()) * 1000
