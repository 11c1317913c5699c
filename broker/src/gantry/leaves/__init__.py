"""Functions of bytes and ints, batch-wise: frames, records, queue entries, properties, keys of the index, hashes.

Only code that touches each byte of each message is here.  Callers write `from gantry.leaves import frames, records`
and get one of two implementations: the compiled modules of `_fast`, or the pure ones of this folder.  Both export the
same names and give the same results on valid and on hostile bytes.  A type checker always sees the pure ones.

The compiled twins are made at installation where a C compiler is present.  Pure leaves are slower by an order of
magnitude, so a server that runs on them logs one line at its start: `COMPILED` is False and `why_pure` returns the
reason.  GANTRY_PURE=1 chooses them on purpose.
"""

from typing import TYPE_CHECKING

from gantry.leaves._choice import COMPILED, why_pure

if TYPE_CHECKING or not COMPILED:
    from gantry.leaves import (
        delays,
        frames,
        halves,
        hashes,
        keys,
        leases,
        messages,
        openhalves,
        properties,
        queues,
        records,
        runs,
        sendbacks,
    )
else:
    from gantry.leaves._fast import (
        delays,
        frames,
        halves,
        hashes,
        keys,
        leases,
        messages,
        openhalves,
        properties,
        queues,
        records,
        runs,
        sendbacks,
    )

__all__ = [
    "COMPILED",
    "delays",
    "frames",
    "halves",
    "hashes",
    "keys",
    "leases",
    "messages",
    "openhalves",
    "properties",
    "queues",
    "records",
    "runs",
    "sendbacks",
    "why_pure",
]
