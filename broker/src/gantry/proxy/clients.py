"""The clients that called lately: what they said about themselves, and their telemetry streams.  Pure, but for streams.

A client lives while it calls: every call counts, not only heartbeats.  Nothing depends on its telemetry stream, because
some clients open it again only after five minutes when a proxy was restarted.  Settings are what it said last; a client
without settings is served as well.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from gantry.proxy import messaging_pb2 as pb
from gantry.proxy.caller import Caller
from gantry.proxy.faults import FaultError
from gantry.proxy.stream import Stream
from gantry.transport.fairness import SharedPlaces

ALIVE_S = 40.0  # clients send heartbeats every 10 s, Rust's every 30 s
CLIENTS_MAX = 50_000
SETTINGS_BYTES_MAX = 256 << 20  # of all clients
_TOPICS_MAX = 1_000  # of one client
_GROUPS_MAX = 100


@dataclass(slots=True)
class KnownClient:
    """One client; `groups` are its consumer groups, `published` topics that it sent transactions to."""

    caller: Caller
    first_caller: Caller  # whose host it counts for
    seen_at: float = 0.0
    settings: pb.Settings | None = None
    settings_bytes: int = 0
    groups: set[str] = field(default_factory=set)
    published: set[str] = field(default_factory=set)
    streams: list[Stream] = field(default_factory=list)
    is_ended: bool = False

    def publishes(self, topic: str) -> bool:
        """Return whether it sends to this topic."""
        return topic in self.published

    def joined(self, group: str) -> None:
        """Note a consumer group of the client."""
        if group and len(self.groups) < _GROUPS_MAX:
            self.groups.add(group)

    def sends_to(self, topic: str) -> None:
        """Note a topic that the client publishes."""
        if topic and len(self.published) < _TOPICS_MAX:
            self.published.add(topic)


class KnownClients:
    """All clients by their id; times are the loop's, in seconds."""

    def __init__(self, clients_max: int = CLIENTS_MAX) -> None:
        self._places = SharedPlaces(clients_max)
        self._settings = SharedPlaces(SETTINGS_BYTES_MAX)  # bytes
        self._known: OrderedDict[str, KnownClient] = OrderedDict()  # the one seen last comes last
        self._turn = 0
        self.streams = 0  # open telemetry streams

    def __len__(self) -> int:
        return len(self._known)

    def seen(self, caller: Caller, now: float) -> KnownClient:
        """Return the client that calls now; FaultError TOO_MANY_REQUESTS when there are too many."""
        client = self._known.get(caller.client_id)
        if client is None:
            if not self._places.take(caller):
                self.expire(now)  # else `presence` does, now and then: it looks at all clients that are silent
                if not self._places.take(caller):
                    text = f"{len(self._known)} clients are known to this proxy, and this host has its share of them"
                    raise FaultError(pb.TOO_MANY_REQUESTS, f"{text}; connect to another one")
            client = self._known[caller.client_id] = KnownClient(caller, caller)
        client.caller = caller
        self.called(client, now)
        return client

    def called(self, client: KnownClient, now: float) -> None:
        """Note that a known client lives now; `expire` looks at the one that was silent longest first."""
        client.seen_at = now
        if self._known.get(client.caller.client_id) is client:
            self._known.move_to_end(client.caller.client_id)

    def ended(self, client_id: str) -> KnownClient | None:
        """Forget a client that said goodbye; None when it was not known."""
        client = self._known.get(client_id)
        if client is not None:
            self._forget(client)
            client.is_ended = True
            for stream in client.streams:
                stream.finish()
        return client

    def expire(self, now: float) -> None:
        """Forget clients that were not seen for `ALIVE_S` and have no stream."""
        silent = list(takewhile(lambda one: one[1].seen_at + ALIVE_S <= now, self._known.items()))
        for _, client in silent:
            if not client.streams:
                self._forget(client)

    def _forget(self, client: KnownClient) -> None:
        del self._known[client.caller.client_id]
        self._places.give_back(client.first_caller)
        if client.settings_bytes:
            self._settings.give_back(client.first_caller, client.settings_bytes)
            client.settings_bytes = 0

    def keep_settings(self, client: KnownClient, settings: pb.Settings) -> None:
        """Remember what a client said about itself last; FaultError TOO_MANY_REQUESTS when it is too much."""
        size = settings.ByteSize() if self._known.get(client.caller.client_id) is client else 0
        if client.settings_bytes:
            self._settings.give_back(client.first_caller, client.settings_bytes)
            client.settings_bytes = 0
        if size and not self._settings.take(client.first_caller, size):
            raise FaultError(pb.TOO_MANY_REQUESTS, "settings of all clients, or of this host, are too long together")
        client.settings, client.settings_bytes = settings, size

    def opened(self, client: KnownClient, stream: Stream) -> None:
        """Note a telemetry stream of a client."""
        client.streams.append(stream)
        self.streams += 1

    def closed(self, client: KnownClient, stream: Stream) -> None:
        """Forget a stream."""
        client.streams.remove(stream)
        self.streams -= 1

    def alive(self, now: float) -> Iterator[KnownClient]:
        """Return the clients that were seen in the last `ALIVE_S`."""
        return (client for client in list(self._known.values()) if client.seen_at + ALIVE_S > now)

    def transactional(self) -> list[str]:
        """Return the topics that clients with a stream publish."""
        return sorted({topic for client in self._known.values() if client.streams for topic in client.published})

    def stream_for(self, topic: str) -> Stream | None:
        """Return a stream of a client that publishes the topic, another one at each call; None without one."""
        found = [client.streams[-1] for client in self._known.values() if client.streams and client.publishes(topic)]
        if not found:
            return None
        self._turn += 1
        return found[self._turn % len(found)]
