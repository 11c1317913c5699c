"""Op messages: the log of outcomes, beside the halves that nobody may remove.

A half message cannot be deleted from a log, so its end is another message, under RMQ_SYS_TRANS_OP_HALF_TOPIC.  Its
body is RocketMQ's: queue offsets of halves, each followed by a comma (5.x; 4.x writes one bare number), which is
all that RocketMQ's check loop wants to know.  Who settles idempotently needs more, so ours say it in properties that
RocketMQ does not look at:

    GANTRY_TX   `12c 15r:40 ...`  root, outcome (c committed, r rolled back, g given up) and, where the transaction
                stands elsewhere by now, the offsets of its copies
    KEYS        the roots, so that the key index finds the outcome of a transaction that no table holds any more

One op message holds what was settled in one turn of the loop.  An op of RocketMQ's has no GANTRY_TX: it names
halves, and what became of them has to be found out elsewhere.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from gantry.leaves import frames, hashes, properties
from gantry.model import names

if TYPE_CHECKING:
    from gantry.leaves.frames import Send

SETTLED_MAX = 64
"""So many fit an op message whatever their offsets: RocketMQ keeps bodies below 4096 bytes."""

_TAG = b"d"  # RocketMQ: TransactionalMessageUtil.REMOVE_TAG
_STATE = b"GANTRY_TX"
_ONE = re.compile(r"(\d{1,19})([crg])((?::\d{1,19})*)")
_OFFSET_MAX = (1 << 63) - 1


class Outcome(enum.IntEnum):
    """What became of a transaction; two bits each in the settle map."""

    OPEN = 0
    COMMITTED = 1
    ROLLED_BACK = 2
    GIVEN_UP = 3


_LETTERS = {Outcome.COMMITTED: "c", Outcome.ROLLED_BACK: "r", Outcome.GIVEN_UP: "g"}
_OUTCOMES = {letter: outcome for outcome, letter in _LETTERS.items()}


class Settled(NamedTuple):
    """One transaction's end; `copies` are the queue offsets at which it stands besides its root."""

    root: int
    outcome: Outcome
    copies: tuple[int, ...] = ()


def op_message(settled: Sequence[Settled], born_ms: int, host: bytes) -> Send:
    """The op message that says so."""
    assert 0 < len(settled) <= SETTLED_MAX
    words = [
        f"{one.root}{_LETTERS[one.outcome]}{''.join(f':{offset}' for offset in one.copies)}" for one in settled
    ]
    keys = " ".join([str(one.root) for one in settled]).encode()
    body = "".join([f"{offset}," for one in settled for offset in (one.root, *one.copies)])
    text = b"TAGS\x01%b\x02KEYS\x01%b\x02%b\x01%b\x02" % (_TAG, keys, _STATE, " ".join(words).encode())
    return frames.Send(
        topic=names.OP_HALF_TOPIC,
        queue_id=0,
        born_ms=born_ms,
        properties=text,
        body=body.encode(),
        keys=keys,
        tags_code=hashes.java_hash(_TAG),
        born_host=host,
    )


def settled_in(text: bytes) -> list[Settled] | None:
    """What an op's properties say; None for an op of RocketMQ's, whose body has to be read."""
    state = properties.get(text, _STATE)
    if state is None:
        return None
    found = []
    for word in state.decode("ascii", "replace").split(" "):
        match = _ONE.fullmatch(word)
        if match is not None:
            copies = tuple(int(offset) for offset in match[3].split(":")[1:])
            found.append(Settled(int(match[1]), _OUTCOMES[match[2]], copies))
    return found


def offsets_in(body: bytes) -> list[int]:
    """The half-queue offsets that an op's body names; what is no number is passed over, as RocketMQ does."""
    words = [word.strip() for word in body.split(b",")]
    return [int(word) for word in words if word.isdigit() and len(word) <= 19 and int(word) <= _OFFSET_MAX]
