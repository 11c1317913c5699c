"""Appending copies that the broker itself makes of stored messages, for another topic or time.

A copy is appended unchanged: born time, born host and properties come from the original.  The
errors of the store become refusals as they do for messages that producers send, and a full disk shuts the same gate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gantry.append.admit import WriteGate
from gantry.append.batch import GATE_DISK_FULL
from gantry.errors import DiskFullError, Refusal, StoreError
from gantry.store.commitlog import RunTooLongError
from gantry.wire.codes import ResponseCode

if TYPE_CHECKING:
    from gantry.leaves.frames import Send
    from gantry.store.store import Store


def append_copies(
    store: Store, gate: WriteGate, copies: Sequence[Send], is_scanned: bool = False, is_owed: bool = False
) -> int | Refusal:
    """Append copies and return the end of the log behind them; on a refusal none of them is in it.

    is_scanned, is_owed: see `Store.append`; what is owed passes a gate that a full disk has shut.
    """
    refused = gate.refusal_but_for(GATE_DISK_FULL) if is_owed else gate.refusal
    if refused is not None:
        return refused
    try:
        return store.append(copies, is_scanned=is_scanned, is_owed=is_owed)
    except DiskFullError as error:
        refusal = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}")
        gate.shut(GATE_DISK_FULL, refusal)
        return refusal
    except RunTooLongError as error:
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"too long for a segment: {error}")
    except StoreError as error:
        # The store has reported its failure, and the process is going to end; until then this is the answer.
        return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}")
