"""One of RocketMQ 5's clients in a test: its topic, its consumer group, and what it got."""

import time
from collections.abc import Sequence

from interop import grpcclients, servers
from interop.grpcclients import bodies, create_group, create_topic, rows, stored
from interop.processes import Driver, Json
from testkit.patience import HANG_S

POLICY_MS = (500, 500, 500)


class Play:
    """One client, its topic and its group."""

    def __init__(self, driver: Driver, server: servers.Server, name: str) -> None:
        self.driver, self.topic, self.group = driver, name, f"G{name}"
        self.server = server

    def prepare(
        self,
        kind: str = "NORMAL",
        *,
        is_orderly: bool = False,
        retries: int = 16,
        delays_ms: Sequence[int] = POLICY_MS,
    ) -> None:
        """Make the topic, and the group at the beginning of it; empty delays are RocketMQ's."""
        create_topic(self.server, self.topic, kind)
        create_group(self.server, self.group, is_orderly=is_orderly, retries=retries, delays_ms=delays_ms)
        grpcclients.begin_at_the_start(self.server, self.group, self.topic)

    def send(self, count: int, prefix: str = "m", **more: object) -> None:
        self.driver.call("send", topic=self.topic, count=count, prefix=prefix, **more)

    def resend(self, count: int, prefix: str) -> None:
        """Send messages named prefix0-0, prefix1-0 and so on, each until it is acknowledged."""
        for number in range(count):
            grpcclients.insist(lambda number=number: self.send(1, f"{prefix}{number}"))

    def consume(self, kind: str, **more: object) -> None:
        """Begin a consumer: `simple`, or `subscribe` for one with a listener."""
        self.driver.call(kind, id=self.topic, consumer_group=self.group, topic=self.topic, **more)

    def receive(self, count: int, invisible_s: float) -> list[Json]:
        """Receive until there are so many messages."""
        found: list[Json] = []
        deadline = time.monotonic() + HANG_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"{self.topic}: {found}"
            answer = self.driver.call("receive", id=self.topic, count=count - len(found), invisible_s=invisible_s)
            found += rows(answer, "messages")
        return found

    def settle(self, op: str, messages: list[Json], **more: object) -> None:
        for message in messages:
            self.driver.call(op, id=self.topic, message=message["messageId"], **more)

    def got(self, event: str = "message") -> list[str]:
        """The bodies of a listener's messages so far, in order; `done` and `failed` say how it ended with them.

        `acked` are those of load().
        """
        self.driver.settle(0.05)
        mine = (one for one in self.driver.events if one["event"] == event)
        return [str(one["body"]) for one in mine if one.get("consumer", self.topic) == self.topic]

    def has_got(self, event: str, count: int) -> list[str]:
        """Wait until a listener has so many, and return them."""
        return grpcclients.wait_until(lambda: self.got(event), lambda seen: len(seen) >= count)

    def dead(self) -> list[str]:
        return bodies(stored(self.server, f"%DLQ%{self.group}", 1))


