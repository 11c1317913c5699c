"""Functions of bytes and ints, batch-wise: frames, records, queue entries, properties, keys of the index, hashes.

Everything that touches each byte of each message lives here, and nothing else does.  Callers write
`from gantry.leaves import frames, records` and never learn which twin they got: the compiled modules of `_fast`, or the
pure ones of this folder, which export the same names and give the same results on valid and on hostile bytes.  For a
type checker they are always the pure ones.

The compiled twins are made at installation where a C compiler is present.  Pure leaves are slower by an order of
magnitude, so a server that runs on them says so at its start, in one line: `COMPILED` is False and `why_pure` has the
words.  GANTRY_PURE=1 chooses them on purpose.
"""

from typing import TYPE_CHECKING

from gantry.leaves._choice import COMPILED, why_pure

if TYPE_CHECKING or not COMPILED:
    from gantry.leaves import frames, halves, hashes, keys, properties, queues, records, runs
else:
    from gantry.leaves._fast import frames, halves, hashes, keys, properties, queues, records, runs

__all__ = ["COMPILED", "frames", "halves", "hashes", "keys", "properties", "queues", "records", "runs", "why_pure"]
