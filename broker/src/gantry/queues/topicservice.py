"""Topics as one part of the server: what serves their calls, and what forwards their messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gantry.gateway.brokers import Brokers
from gantry.queues.account import AccountDoor
from gantry.queues.calls import CallDoor
from gantry.queues.deliveries import Deliveries
from gantry.queues.fanout import FanOut
from gantry.queues.publishing import Publishes
from gantry.queues.sending import QueueSends
from gantry.queues.table import KnownQueues
from gantry.queues.topics import TopicDoor
from gantry.queues.topictable import KnownTopics


class TopicService:
    """Topics and the account; start() and close() once.  may_push: whether HTTP endpoints are served."""

    def __init__(
        self, brokers: Brokers, queues: KnownQueues, sends: QueueSends, now_ms: Callable[[], int], may_push: bool
    ) -> None:
        self._topics = KnownTopics(brokers, now_ms)
        self._deliveries = Deliveries(queues, sends)
        self._fan_out = FanOut(brokers, self._topics, self._deliveries.deliver, may_push)
        account = AccountDoor()
        self.doors: Mapping[str, CallDoor] = {
            "topics": TopicDoor(self._topics, Publishes(brokers, now_ms), may_push),
            "commonbuy": account,
            "": account,
        }

    def start(self) -> None:
        """Begin to forward."""
        self._fan_out.start()

    async def close(self) -> None:
        """End forwarding, and what is under way."""
        await self._fan_out.close()
        await self._deliveries.close()
        await self._topics.close()

    def gauges(self) -> dict[str, int]:
        """Return the numbers of metrics."""
        counts = self._fan_out.counts
        return {
            "topic_workers": self._fan_out.workers,
            **{f"topic_{name}": counts[name] for name in ("delivered", "retried", "given_up")},
        }
