"""Functions of bytes and ints, batch-wise: frames, records, queues, hashes, properties.

Everything that touches each byte of each message lives here and nothing else does.  Callers write
`from gantry.leaves import frames, records` and never learn which twin they got.
"""
