"""Whether clients should come to this name server.

A name server that starts knows nothing for a second or two, and must not tell clients that their topic does not exist
while another one has its route.  Where it was told that brokers are to be expected (`awaits_brokers`), it is ready

    when it knows a topic's queues, and its first broker came three seconds ago: the others had time to come
    when the last broker that it knew said goodbye: it was told that there are none

and not when its table is empty for another reason: it has just started, or all connections to brokers were lost.
Until then /readyz says no, and a route that it does not know is refused as "not ready" (SYSTEM_ERROR, as in RocketMQ
with `needWaitForService`), upon which our clients ask the next name server.  Routes that it knows it tells.

Without `awaits_brokers` it is ready at once: there may be no brokers at all.
"""

from __future__ import annotations

from gantry.nameserver.table import RouteTable

SETTLE_MS = 3_000  # a broker that lost its connection is back within two seconds


class Readiness:
    """The verdict for one table."""

    def __init__(self, table: RouteTable, awaits_brokers: bool) -> None:
        self._table = table
        self._awaits_brokers = awaits_brokers

    def verdict(self, now_ms: int) -> tuple[bool, str]:
        """Whether it is ready, and why or why not; milliseconds of the clock that the table is given."""
        table = self._table
        if not self._awaits_brokers or table.was_emptied_in_order:
            return True, f"{table.live_count} brokers"
        if not table.has_queues:
            return False, f"{table.live_count} brokers have registered, and no topic of a master is known yet"
        if now_ms - table.since_ms < SETTLE_MS:
            return False, f"{table.live_count} brokers have registered; others may follow"
        return True, f"{table.live_count} brokers"
