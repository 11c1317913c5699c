"""The compiled twins of the leaves; `gantry.leaves` says when they run.

Each module has the names of its pure twin.  What it does not know well enough to be fast at, it hands to the pure code,
whose answer counts: so the two agree by construction, and `tests/differential` looks whether they do.
"""
