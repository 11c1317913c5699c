"""Whether a name server is ready for clients.

A name server that starts knows no routes for a second or two.  It must not report that a topic does not exist while
another name server has its route.  When brokers are expected (`awaits_brokers`), it is ready
    - when it knows a topic's queues, and its first broker registered three seconds ago, so that others could follow
    - or when the last known broker has unregistered
and not ready when its table is empty for another reason: it has just started, or all connections to brokers were lost.

Until then /readyz fails, and an unknown route is refused as "not ready" (SYSTEM_ERROR, as in RocketMQ with
`needWaitForService`); our clients then ask the next name server.  Known routes are answered.  Without `awaits_brokers`
it is ready at once, because there may be no brokers at all.
"""

from __future__ import annotations

from gantry.nameserver.table import RouteTable

SETTLE_MS = 3_000  # a broker that lost its connection reconnects within two seconds


class Readiness:
    """The readiness of one route table."""

    def __init__(self, table: RouteTable, awaits_brokers: bool) -> None:
        self._table = table
        self._awaits_brokers = awaits_brokers

    def verdict(self, now_ms: int) -> tuple[bool, str]:
        """Return whether it is ready, and the reason. now_ms: of the same clock as the table's."""
        table = self._table
        if not self._awaits_brokers or table.was_emptied_in_order:
            return True, f"{table.live_count} brokers"
        if not table.topics:
            return False, f"{table.live_count} brokers have registered, and no topic of a master is known yet"
        if now_ms - table.since_ms < SETTLE_MS:
            return False, f"{table.live_count} brokers have registered; others may follow"
        return True, f"{table.live_count} brokers"
