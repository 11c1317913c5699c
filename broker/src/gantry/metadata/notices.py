"""Notifying the consumers of a group that its members or topics changed, so that they share the queues again.

The request is NOTIFY_CONSUMER_IDS_CHANGED (40), one-way, to every connection of the group, also to the one whose
heartbeat caused it.  A client answers it by asking for the list of members at once.  It is a hint: a client that
misses one rebalances on its own period all the same.

The first change of a group is notified at once.  Changes that follow within a fifth of a second are sent together:
a thousand consumers that start at once would otherwise cause half a million notices, each followed by a list of up
to a thousand names.
"""

from __future__ import annotations

from gantry.clock import Clock
from gantry.metadata.clients import Clients, ConsumerGroup
from gantry.metadata.groups import Groups
from gantry.wire.codes import RequestCode
from gantry.wire.command import oneway

QUIET_S = 0.2


class ChangeNotices:
    """Listens to `Clients` and sends notices to consumers."""

    def __init__(self, clients: Clients, groups: Groups, clock: Clock) -> None:
        self._clients = clients
        self._groups = groups
        self._clock = clock
        self._told_at: dict[str, float] = {}
        self._owed: set[str] = set()
        clients.on_change(self.group_changed)

    def group_changed(self, group: ConsumerGroup) -> None:
        """Notify the group now, or after its quiet time when it was notified a moment ago."""
        if not self._is_told(group):
            return
        now = self._clock.monotonic()
        if now - self._told_at.get(group.name, -QUIET_S) < QUIET_S:
            self._owed.add(group.name)
            return
        self._told_at[group.name] = now
        _notify(group)

    def look_again(self, name: str) -> None:
        """Notify a group because a queue's lock is free for which its members may wait."""
        group = self._clients.consumer_group(name)
        if group is not None:
            self.group_changed(group)

    def flush(self, now: float) -> None:
        """Notify groups whose quiet time is over (`now` in monotonic seconds); to be called every 100 ms or so."""
        for name in [name for name, told_at in self._told_at.items() if now - told_at >= QUIET_S]:
            del self._told_at[name]
            if name not in self._owed:
                continue
            self._owed.discard(name)
            group = self._clients.consumer_group(name)
            if group is not None and self._is_told(group):
                self._told_at[name] = now
                _notify(group)

    def _is_told(self, group: ConsumerGroup) -> bool:
        # In broadcasting every member reads every queue: nothing is shared, nothing to rebalance.
        if not group.members or group.consumption.is_broadcasting:
            return False
        config = self._groups.get(group.name)
        return config is not None and config.notify_enable


def _notify(group: ConsumerGroup) -> None:
    for connection in list(group.members):
        connection.send_oneway(oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group.name}))
