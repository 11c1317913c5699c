"""Taking in halves: a transactional message becomes a half message here, or is refused.

Admission has checked topic, queue and size before.  Refused here: everything when transactions are switched off; a half
when `open_max` are open (each needs memory until it ends); a producer group that is longer than any group's name, which
every open half would hold in memory; a half of a batch that does not say of which.

A redelivery and a dead letter are no halves.  When request 36 fails, Java's clients before 4.6.1 send a message to its
retry topic with TRAN_MSG and sys flag 4 (`docs/redelivery.md`), and no client would ever end that transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gantry.errors import Refusal
from gantry.leaves import halves, properties
from gantry.model import names
from gantry.transaction import batches, half
from gantry.wire.codes import ResponseCode

if TYPE_CHECKING:
    from gantry.leaves.frames import Send

_OFF = Refusal(ResponseCode.NO_PERMISSION, "the broker sending transaction message is forbidden")
_READ = (batches.PROPERTY.encode(), halves.GROUP)
_GROUP_BYTES_MAX = 255
_SEPARATORS = frozenset("\x01\x02")


class HalfIntake:
    """Takes halves in; `open_count` returns how many transactions are open."""

    def __init__(self, open_count: Callable[[], int], open_max: int, saw_plain: Callable[[str], None]) -> None:
        self.open_max = open_max  # 0: transactions are switched off
        self.saw_plain = saw_plain
        self._open_count = open_count

    def wants(self, send: Send) -> bool:
        """Whether an admitted message is to become a half; a redelivery or dead letter is none, whatever it was."""
        return half.is_half(send) and names.group_of(send.topic) is None

    def take_run(self, sends: Sequence[Send]) -> list[int] | None:
        """Make admitted messages halves and return their queues; None where one needs `wants` and `take`."""
        if not self.open_max or self._open_count() >= self.open_max:
            return None
        return halves.disguise_run(sends, names.HALF_TOPIC, _GROUP_BYTES_MAX)

    def take(self, send: Send) -> Refusal | None:
        """Make the message a half; return why it is refused, else None."""
        if not self.open_max:
            return _OFF
        if self._open_count() >= self.open_max:
            return Refusal(ResponseCode.SYSTEM_BUSY, f"{self.open_max} transactions are open, which is the limit")
        batch, group = properties.pick(send.properties, _READ)
        group_bytes = len(send.group.encode() if group is None else group)
        if group_bytes > _GROUP_BYTES_MAX:
            remark = f"the producer group has {group_bytes} bytes, {_GROUP_BYTES_MAX} are allowed"
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        if group is None and not _SEPARATORS.isdisjoint(send.group):
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, "the producer group has the character 1 or 2, expected none")
        if batch is not None and batches.read_key(batch.decode("utf-8", "replace")) is None:
            return Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"{batches.PROPERTY} is not of the form sink/batch/part/home, so the message could never be settled",
            )
        half.disguise(send)
        return None
