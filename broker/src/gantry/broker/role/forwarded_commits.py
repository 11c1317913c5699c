"""Offsets that consumers commit at a slave, on their way to the master."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from gantry.wire import ha

if TYPE_CHECKING:
    from gantry.broker.role.slave_tables import Away
    from gantry.metadata.offsets import Offsets
    from gantry.replication.link import SlaveLink

# Of a frame of a slave's, which may have 256 KiB (`wire.ha`): an offset takes 30 bytes at most, a key as much as 16.
_OFFSETS_A_FRAME, _OFFSETS_A_KEY = 4000, 16


class ForwardedCommits:
    """Loop thread only.  `away`: queue -> offset by topic@group, of commits that the master does not have yet."""

    def __init__(self, offsets: Offsets) -> None:
        self.away: dict[str, dict[str, int]] = {}
        self._offsets = offsets

    def begin(self) -> None:
        """Start to note the commits of consumers."""
        self._offsets.touched = set()

    def gather(self) -> None:
        """Take over the commits since the last call."""
        touched, self._offsets.touched = self._offsets.touched or (), set()
        for key in touched:
            value = self._offsets.value(key)
            if value is not None:
                self.away[key] = value

    def send(self, link: SlaveLink | None) -> None:
        """Send as many commits as the link takes; None: there is no link, and all commits wait."""
        self.gather()
        while self.away and link is not None:
            part = part_of(self.away)
            if not link.commit(ha.dumps(part)):
                break
            for key, sent in part.items():
                left = {queue: offset for queue, offset in self.away.pop(key).items() if queue not in sent}
                if left:
                    self.away[key] = left


def part_of(away: Away) -> dict[str, dict[str, int]]:
    """Return as many of these offsets as fit into one frame, if need be only a part of a large topic's."""
    part, room = {}, _OFFSETS_A_FRAME
    for key, offsets in away.items():
        part[key] = dict(islice(offsets.items(), room))
        room -= len(offsets) + _OFFSETS_A_KEY
        if room <= 0:
            break
    return part
