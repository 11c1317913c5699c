"""Functions of bytes and ints, batch-wise: frames, records, queues, hashes, properties.

Everything that touches each byte of each message lives here, and nothing else does.  Callers write
`from gantry.leaves import frames, records` and never learn which twin they got: the pure modules of this folder, or
compiled ones that export the same names and give the same results on valid and on hostile bytes.

Pure leaves are slower by an order of magnitude, so a server says at its start, in one line, that it runs on them and
why: `COMPILED` is False and `why_pure` has the words.
"""

from gantry.leaves import frames, hashes, properties, queues, records

__all__ = ["COMPILED", "frames", "hashes", "properties", "queues", "records", "why_pure"]

COMPILED: bool = False
why_pure: str = "this version has no compiled leaves"
