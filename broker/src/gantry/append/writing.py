"""One append, with what the errors of the store mean for the asker.

    DiskFullError      14, and the gate is shut until the periodic job tries again
    RunTooLongError    13: these messages can never be appended together
    ZeroSectorError    their properties get a checksum (`leaves.zerosectors`), and they are appended again
    StoreError         14: the store has reported its failure, and the process is going to end

All that is appended to the log by this broker comes through here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gantry.append.admit import WriteGate
from gantry.errors import DiskFullError, Refusal, StoreError
from gantry.leaves import records, zerosectors
from gantry.store.commitlog import RunTooLongError, ZeroSectorError
from gantry.wire.codes import ResponseCode

if TYPE_CHECKING:
    from gantry.leaves.frames import Send
    from gantry.store.store import Store

GATE_DISK_FULL = "disk full"


def append_run(
    store: Store,
    gate: WriteGate,
    sends: Sequence[Send],
    *,
    together: bool = False,
    is_scanned: bool = False,
    is_owed: bool = False,
) -> int | Refusal:
    """Append messages and return the end of the log behind them; on a refusal none of them is in it.

    The caller has looked at the gate.  together, is_scanned, is_owed: see `Store.append`.
    """
    try:
        return store.append(sends, together, is_scanned, is_owed)
    except DiskFullError as error:
        refusal = _unavailable(error)
        gate.shut(GATE_DISK_FULL, refusal)
        return refusal
    except RunTooLongError as error:
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"too long to be stored: {error}")
    except ZeroSectorError:
        for send in sends:
            send.properties = zerosectors.guarded(send.properties, records.PROPERTIES_BYTES_MAX)
        return append_run(store, gate, sends, together=together, is_scanned=is_scanned, is_owed=is_owed)
    except StoreError as error:
        return _unavailable(error)


def append_copies(
    store: Store, gate: WriteGate, copies: Sequence[Send], is_scanned: bool = False, is_owed: bool = False
) -> int | Refusal:
    """Append copies that the broker makes of stored messages, unless the gate is shut; see `append_run`.

    What is owed passes a gate that a full disk has shut.
    """
    refused = gate.refusal_but_for(GATE_DISK_FULL) if is_owed else gate.refusal
    if refused is not None:
        return refused
    return append_run(store, gate, copies, is_scanned=is_scanned, is_owed=is_owed)


def _unavailable(error: StoreError) -> Refusal:
    return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}")
