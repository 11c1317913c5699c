"""Members of one consumer group with different subscriptions.

A group has one table of subscriptions (see `clients`), and queues are shared among all members, whatever each of them
subscribes to.  So with different subscriptions messages are skipped for the whole group.  The expression of the last
heartbeat filters the pulls of all members, and a queue whose owner does not subscribe to its topic is not read.
RocketMQ does not report this.  Here there are a metric and a log line for as long as it lasts; the behaviour is the
same, because clients rely on it.

Two subscriptions are the same when they have the same type and text, with tags in any order.  A topic to which only
some members subscribe is reported, too.  So is a deployment that changes a subscription member by member, while it
lasts.

For a member only a digest of its subscriptions is kept, and the text of a few different ones for each group: there may
be many members, and each may name thousands of topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING

from gantry.metadata.clients import Clients, ConsumerGroup
from gantry.model.subscription import Subscription

if TYPE_CHECKING:
    from gantry.transport.connection import Connection

_SHOWN_MAX = 3
_TEXT_MAX = 80
_VERSIONS_MAX = 8  # different sets of subscriptions of a group that are compared
_TOPICS_MAX = 200_000  # in all of them
_DIGEST_BYTES = 16

_Wishes = Mapping[str, str]  # topic -> type and expression, as text


class Disagreements:
    """Listens to `Clients`; `found` counts different subscriptions to a topic in a group, where there are several."""

    def __init__(self, clients: Clients, complain: Callable[[str, str], None]) -> None:
        self.found: dict[tuple[str, str], int] = {}
        self._complain = complain
        self._members: dict[str, dict[Connection, bytes]] = {}  # digests
        self._versions: dict[str, dict[bytes, _Wishes]] = {}  # by group and digest
        self._topics = 0  # in all versions
        self._texts: dict[str, str] = {}  # by group
        clients.on_beat(self.heard)
        clients.on_change(self.group_changed)

    def heard(self, connection: Connection, group: ConsumerGroup, subscriptions: Iterable[Subscription]) -> None:
        """Take a member's subscriptions from a heartbeat; log a difference once a minute."""
        wishes: _Wishes = {subscription.topic: _words(subscription) for subscription in subscriptions}
        digest = blake2b(repr(sorted(wishes.items())).encode(), digest_size=_DIGEST_BYTES).digest()
        members = self._members.setdefault(group.name, {})
        if members.get(connection) != digest or self._is_wanted(group.name, digest, wishes):
            members[connection] = digest
            self._forget_unused(group.name)
            if self._is_wanted(group.name, digest, wishes):
                self._versions.setdefault(group.name, {})[digest] = wishes
                self._topics += len(wishes)
            self._compare(group.name)
        text = self._texts.get(group.name)
        if text is not None:
            self._complain(f"disagreement in {group.name}", text)

    def group_changed(self, group: ConsumerGroup) -> None:
        """Forget the subscriptions of members that have gone, and compare the remaining ones."""
        members = self._members.get(group.name, {})
        gone = [connection for connection in members if connection not in group.members]
        for connection in gone:
            del members[connection]
        if not members:
            self._members.pop(group.name, None)
        if gone:
            self._forget_unused(group.name)
            self._compare(group.name)

    def _is_wanted(self, group: str, digest: bytes, wishes: _Wishes) -> bool:
        versions = self._versions.get(group, {})
        has_room = len(versions) < _VERSIONS_MAX and self._topics + len(wishes) <= _TOPICS_MAX
        return has_room and digest not in versions

    def _forget_unused(self, group: str) -> None:
        versions = self._versions.get(group, {})
        for digest in versions.keys() - set(self._members.get(group, {}).values()):
            self._topics -= len(versions.pop(digest))
        if not versions:
            self._versions.pop(group, None)

    def _compare(self, group: str) -> None:
        for key in [key for key in self.found if key[0] == group] if group in self._texts else ():
            del self.found[key]
        self._texts.pop(group, None)
        distinct = list(self._versions.get(group, {}).values())
        if len(distinct) < 2:
            return
        for topic in sorted({topic for wishes in distinct for topic in wishes}):
            ways = {wishes.get(topic, "nothing") for wishes in distinct}
            if len(ways) > 1:
                self.found[group, topic] = len(ways)
                shown = ", ".join(sorted(ways)[:_SHOWN_MAX])
                text = (
                    f"members of group {group} subscribe differently to topic {topic} ({shown}), so messages are "
                    "skipped for the whole group; give all members of a group the same subscription"
                )
                self._texts.setdefault(group, text)


def _words(subscription: Subscription) -> str:
    if subscription.tags:
        text = " || ".join(sorted(subscription.tags))
    else:
        text = subscription.expression.strip()
    return f"{subscription.expression_type} {text[:_TEXT_MAX]!r}"
