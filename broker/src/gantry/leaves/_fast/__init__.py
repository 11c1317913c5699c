"""The compiled twins of the leaves; `gantry.leaves` says when they run.

Each module has the names of its pure twin.  Unusual input is handed to the pure code, whose answer counts.  So the two
agree by construction, and `tests/differential` checks it.
"""
