"""Static queue mappings (TopicQueueMappingInfo) of topics, passed on as brokers registered them.

They are kept as JSON text: decoded, a text of 16 KiB may take some hundred MiB.
"""

from __future__ import annotations

from collections.abc import Mapping

from gantry.wire import bodies

BYTES_MAX = 64 << 20  # of all groups together


class StaticMappings:
    """The mapping of each topic at each group."""

    def __init__(self) -> None:
        self._texts: dict[str, dict[str, bytes]] = {}  # topic -> group -> JSON
        self._bytes = 0

    def has_room(self, group: str, mappings: Mapping[str, bytes]) -> bool:
        """Return whether these of a group may be kept, in the place of those that it has."""
        more = sum(len(text) - len(self._texts.get(topic, {}).get(group, b"")) for topic, text in mappings.items())
        return more <= 0 or self._bytes + more <= BYTES_MAX

    def keep(self, topic: str, group: str, text: bytes) -> None:
        """Set the mapping of a topic at a group."""
        self.drop(topic, group)
        self._texts.setdefault(topic, {})[group] = text
        self._bytes += len(text)

    def drop(self, topic: str, group: str) -> None:
        """Forget the mapping of a topic at a group, if there is one."""
        texts = self._texts.get(topic)
        if texts is None or group not in texts:
            return
        self._bytes -= len(texts.pop(group))
        if not texts:
            del self._texts[topic]

    def of(self, topic: str) -> bytes:
        """Return the topic's mapping by group, as each registered it, as one JSON object; empty when it has none."""
        texts = self._texts.get(topic)
        if not texts:
            return b""
        return b"{" + b",".join([bodies.dumps(group) + b":" + text for group, text in texts.items()]) + b"}"
