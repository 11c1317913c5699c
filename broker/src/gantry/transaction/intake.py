"""Halves on their way in: what producers send as transactional becomes a half message here, or is refused.

Admission has looked at topic, queue and size by then.  What is refused here: everything when transactions are switched
off; one more when as many are open as may be (each costs memory until it ends); properties that leave no room for what
the broker adds now and when it puts the half back; a part of a batch that does not say of which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gantry.append.admit import PROPERTIES_BYTES_MAX
from gantry.errors import Refusal
from gantry.leaves import properties
from gantry.model import names
from gantry.transaction import batches, half
from gantry.wire.codes import ResponseCode

if TYPE_CHECKING:
    from gantry.leaves.frames import Send

_OFF = Refusal(ResponseCode.NO_PERMISSION, "the broker sending transaction message is forbidden")
_BATCH = (batches.PROPERTY.encode(),)
_ROOM_FOR_OURS_BYTES = 512  # region, cluster and a unique key, added when it is appended


class HalfIntake:
    """Takes halves in; `open_count` says how many transactions are open."""

    def __init__(self, open_count: Callable[[], int], open_max: int, saw_plain: Callable[[str], None]) -> None:
        self.open_max = open_max  # 0: transactions are switched off
        self.saw_plain = saw_plain
        self._open_count = open_count

    def wants(self, send: Send) -> bool:
        """Whether an admitted message is to become a half; a dead letter is none, whatever it was."""
        return half.is_half(send) and not names.is_dlq_topic(send.topic)

    def take(self, send: Send) -> Refusal | None:
        """Disguise it, or say why not."""
        if not self.open_max:
            return _OFF
        if self._open_count() >= self.open_max:
            return Refusal(ResponseCode.SYSTEM_BUSY, f"{self.open_max} transactions are open, which is the limit")
        room = PROPERTIES_BYTES_MAX - half.OVERHEAD_BYTES - _ROOM_FOR_OURS_BYTES
        if len(send.properties) > room:
            return Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message properties have {len(send.properties)} bytes, {room} are allowed in a half message",
            )
        (batch,) = properties.pick(send.properties, _BATCH)
        if batch is not None and batches.read_key(batch.decode("utf-8", "replace")) is None:
            return Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"{batches.PROPERTY} does not say sink/batch/part/home, and nobody could settle the message",
            )
        half.disguise(send)
        return None
