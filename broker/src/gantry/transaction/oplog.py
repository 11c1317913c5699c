"""Op messages: the outcomes of transactions, because halves cannot be removed from the log.

A half message cannot be deleted from a log, so its end is another message, under RMQ_SYS_TRANS_OP_HALF_TOPIC.  Its
body is what RocketMQ's check loop reads: the queue offset of the half that is done, as a decimal number.  RocketMQ 4
reads nothing else.  RocketMQ 5 reads and writes lists too (`12,15,`); we read them, but write a message for each place.
To settle idempotently more is needed, so ours have properties that RocketMQ ignores:

    GANTRY_TX   `12c` or `15r:40:77`  root, outcome (c committed, r rolled back, g given up) and, where the transaction
                has been put back, the offsets of its copies
    KEYS        the root, so that the key index finds the outcome of a transaction that no table holds any more

A transaction with several places has an op for each, in the order of GANTRY_TX, and each has the whole property: one
is enough for us, and a missing last one can be detected.  An op of RocketMQ's has no GANTRY_TX: it names
halves, and their outcome has to be looked up elsewhere.

A *mark* is an op that names no half.  It means that everything before it in the log has its ops (`settle`).
"""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING, NamedTuple

from gantry.leaves import openhalves, properties
from gantry.model import names

if TYPE_CHECKING:
    from gantry.leaves.frames import Send

_MARK = b"mark"
# What RocketMQ makes of a body that is no number: below every half offset, so the op is done as soon as it is read.
_NO_HALF = b"-1"
_ONE = re.compile(r"(\d{1,19})([crg])((?::\d{1,19})*)")
_OFFSET_MAX = (1 << 63) - 1
_LOOKED_AT = (openhalves.STATE,)
_DIGITS_SURE = 19


class TransactionState(enum.IntEnum):
    """How a transaction ended, or OPEN; two bits each in the settle map."""

    OPEN = 0
    COMMITTED = 1
    ROLLED_BACK = 2
    GIVEN_UP = 3


_LETTERS = {TransactionState.COMMITTED: b"c", TransactionState.ROLLED_BACK: b"r", TransactionState.GIVEN_UP: b"g"}
_ENDS = {letter: outcome for outcome, letter in _LETTERS.items()}
_OUTCOMES = {letter.decode(): outcome for outcome, letter in _LETTERS.items()}


class Settled(NamedTuple):
    """One transaction's end; `copies` are the queue offsets of its copies, without its root."""

    root: int
    outcome: TransactionState
    copies: tuple[int, ...] = ()


def op_messages(settled: Settled, born_ms: int, host: bytes) -> list[Send]:
    """Make the op messages of an end: one for each place of the transaction in the half queue."""
    root, outcome, copies = settled
    stamp = names.OP_HALF_TOPIC, born_ms, host
    body = b"%d" % root
    if not copies:
        return [openhalves.op_message(stamp, body, body, body + _LETTERS[outcome])]
    places = [b"%d" % place for place in (root, *copies)]
    state = b"%b%b:%b" % (body, _LETTERS[outcome], b":".join(places[1:]))
    return [openhalves.op_message(stamp, place, body, state) for place in places]


def mark(born_ms: int, host: bytes) -> Send:
    """Make an op message that settles nothing, see the module."""
    return openhalves.op_message((names.OP_HALF_TOPIC, born_ms, host), _NO_HALF, b"", _MARK)


def settled_in(text: bytes) -> list[Settled] | None:
    """Return the ends in an op's properties, none for a mark; None for an op of RocketMQ's, which has only a body."""
    (state,) = properties.pick(text, _LOOKED_AT)
    if state is None:
        return None
    outcome = _ENDS.get(state[-1:])
    if outcome is not None and len(state) <= _DIGITS_SURE and state[:-1].isdigit():
        return [Settled(int(state[:-1]), outcome)]  # nearly all of them
    found = []
    for word in state.decode("ascii", "replace").split(" "):
        match = _ONE.fullmatch(word)
        if match is not None:
            copies = tuple(int(offset) for offset in match[3].split(":")[1:])
            found.append(Settled(int(match[1]), _OUTCOMES[match[2]], copies))
    return found


def offsets_in(body: bytes) -> list[int]:
    """Return the half-queue offsets in an op's body; what is not a number is skipped, as in RocketMQ."""
    words = [word.strip() for word in body.split(b",")]
    return [int(word) for word in words if word.isdigit() and len(word) <= 19 and int(word) <= _OFFSET_MAX]


def cut_short(text: bytes, body: bytes) -> Settled | None:
    """Return the end of an op that is not the last of its transaction, so that others should follow it; else None."""
    settled, named = settled_in(text), offsets_in(body)
    if settled is None or len(settled) != 1 or len(named) != 1:
        return None
    (one,) = settled
    places = (one.root, *one.copies)
    return one if named[0] in places[:-1] else None
