"""How long a test waits for something that has to come.

The limit ends a hang and says nothing about speed: on a quiet machine what is awaited comes in milliseconds, on a
machine with twenty other busy processes a JVM alone takes a minute to start.  A test that waits for something that must
*not* come uses a moved clock or an event behind it, not this.  GANTRY_TEST_HANG_S sets another limit.
"""

import os

HANG_S = float(os.environ.get("GANTRY_TEST_HANG_S", "180"))
