"""Looking up in the log, by the key index, how a transaction ended that no table holds.

Every op message of ours is indexed under its root, and every message under its unique key.  So this works as far back
as the log goes, and costs a look-up in the index.  It is for ends that come after their half was removed from the
settle map, and for folders of RocketMQ's broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gantry.errors import Refusal
from gantry.model import names
from gantry.store.keysearch import TOO_LONG, KeyQuestion, Steps, drive, record_at, records_with
from gantry.transaction.half import HalfFacts
from gantry.transaction.oplog import TransactionState, settled_in
from gantry.wire.codes import ResponseCode

if TYPE_CHECKING:
    from gantry.store.store import Store
    from gantry.transaction.checker import OpenHalf
    from gantry.transaction.endruns import SettleRequest
    from gantry.transaction.settle import Settling

_HITS_MAX = 8
# Searches at a time: each takes a step in every turn of the loop.
_SEARCHES_MAX = 8
_MANY_SEARCHES = Refusal(
    ResponseCode.SYSTEM_BUSY, f"outcomes of {_SEARCHES_MAX} transactions are being looked up in the log; try again"
)


def outcome_in_log(store: Store, root: int) -> Steps[TransactionState | Refusal | None]:
    """Return the outcome in the newest op message with this root; None when there is none; a refusal: too long."""
    newest: tuple[int, TransactionState] | None = None
    question = KeyQuestion(names.OP_HALF_TOPIC, str(root))
    found, is_cut = yield from records_with(store, question, _HITS_MAX)
    for record in found:
        for one in settled_in(record.properties) or ():
            if one.root == root and (newest is None or newest[0] < record.log_offset):
                newest = record.log_offset, one.outcome
    if newest is None:
        return TOO_LONG if is_cut else None
    return newest[1]


def was_delivered(store: Store, half: OpenHalf) -> Steps[bool | Refusal]:
    """Return whether the real message is in its topic: RocketMQ's broker committed it; a refusal: too long."""
    record = yield from record_at(store, half.log_offset)
    key = "" if record is None else HalfFacts(record.properties, record.queue_offset).unique_key
    if not key:
        return False
    found, is_cut = yield from records_with(store, KeyQuestion(half.topic, key), _HITS_MAX)
    if any(one.prepared_offset == half.log_offset for one in found):
        return True
    return TOO_LONG if is_cut else False


class OutcomeSearch:
    """Finds out in the log how transactions ended, for ends of transactions that no table knows."""

    def __init__(self, store: Store, settling: Settling) -> None:
        self._store = store
        self._settling = settling
        self._count = 0

    def submit(self, request: SettleRequest) -> None:
        """Submit a request whose half need not be open any more; it is refused when the search takes too long."""
        settling, half = self._settling, request.half
        if settling.book.open.get(half.current) is half or settling.is_known(half.root):
            settling.submit(request)
            return

        def found(outcome: TransactionState | Refusal | None) -> None:
            if isinstance(outcome, Refusal):
                settling.counts.refuse("long search")
                settling.refuse(request, outcome)
            else:
                settling.submit(request._replace(found=outcome))

        self._search(_last_word(self._store, half), found)

    def look_up(self, root: int, done: Callable[[TransactionState | Refusal | None], None]) -> None:
        """Call `done` with how a transaction ended, or with a refusal when the search takes too long."""
        if self._settling.is_known(root):
            done(self._settling.outcome(root))
        else:
            self._search(outcome_in_log(self._store, root), done)

    def _search(
        self,
        steps: Steps[TransactionState | Refusal | None],
        done: Callable[[TransactionState | Refusal | None], None],
    ) -> None:
        if self._count >= _SEARCHES_MAX:
            done(_MANY_SEARCHES)
        else:
            drive(self._counted(steps), done)

    def _counted(self, steps: Steps[TransactionState | Refusal | None]) -> Steps[TransactionState | Refusal | None]:
        """Count the search as long as it goes on, also when it ends by an error."""
        self._count += 1
        try:
            return (yield from steps)
        finally:
            self._count -= 1


def _last_word(store: Store, half: OpenHalf) -> Steps[TransactionState | Refusal | None]:
    """Return how a transaction ended, by its op or by its real message."""
    ended = yield from outcome_in_log(store, half.root)
    if ended is not None:
        return ended
    delivered = yield from was_delivered(store, half)
    if isinstance(delivered, Refusal):
        return delivered
    return TransactionState.COMMITTED if delivered else None
