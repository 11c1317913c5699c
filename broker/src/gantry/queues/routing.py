"""Which part serves a call: the first word of its path decides.

    queues      `queuecalls`: queues and their messages
    topics      what `topics` adds: topics and their subscriptions
    (none)      the account

`server` makes the table.  A new door is one entry of it; the door itself looks at method, path and query.
"""

from __future__ import annotations

from collections.abc import Mapping

from gantry.queues.calls import CallAnswer, CallDoor, QueueCall
from gantry.queues.faults import QueueFaultError


class DoorTable:
    """Gives calls to doors, by the first word of the path; the empty word is the door of /."""

    def __init__(self, doors: Mapping[str, CallDoor]) -> None:
        self._doors = doors

    async def serve(self, call: QueueCall) -> CallAnswer:
        """Answer one call; QueueFaultError 404 when nothing serves its path, and the errors of a door."""
        door = self._doors.get(call.path[0] if call.path else "")
        if door is None:
            raise QueueFaultError(404, "InvalidRequestURL", f"nothing is served at {call.target[:200]!r}; see /queues")
        return await door.serve(call)
