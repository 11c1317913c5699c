"""What the pods of HTTP queues have beside what all doors have: the users; pure.

A server reads the users again when their file changes, so the template has no digest of them.  The file is part of a
whole volume: kubelets do not follow the changes of a single mounted file (`subPath`).
"""

from __future__ import annotations

from gantry_operator.api.doorspec import Queues
from gantry_operator.desired.doors import FOLDER, DoorPod

USERS = "users"  # field of the user's Secret


def pod(queues: Queues) -> DoorPod:
    """Return the servers' own part."""
    return DoorPod({"queues-users": f"{FOLDER}/{USERS}"}, {queues.users_secret: (USERS,)})
