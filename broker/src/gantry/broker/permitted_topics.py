"""The broker's topics as it registers them: each with at most the permissions that the broker has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Protocol

from gantry.model.topic import PERM_READ_WRITE, TopicConfig


class TopicTable(Protocol):
    """The used part of `metadata.topics.Topics`."""

    def head(self) -> dict[str, object]:
        """Return the table in the form of a registration, without the topics."""
        ...

    def all(self) -> Iterable[TopicConfig]:
        """Return all topics as they are now."""
        ...

    def get(self, name: str) -> TopicConfig | None:
        """Return a topic; None when it does not exist."""
        ...


class PermittedTopics:
    """The topic table for registrations, with each topic's permission limited to the broker's.

    RocketMQ: brokerPermission limits every topic's own permission, so that clients do not send to this broker.
    """

    def __init__(self, topics: TopicTable, permission: int) -> None:
        self._permission = permission
        self._changes = 0  # of the permission
        self._topics = topics

    @property
    def permission(self) -> int:
        """The broker's permission."""
        return self._permission

    @permission.setter
    def permission(self, permission: int) -> None:
        self._permission = permission
        self._changes += 1

    def head(self) -> dict[str, object]:
        """Return the table in the form of a registration, without the topics.

        Its version counts changes of the permission too: a name server takes no topics with a version that it has.
        """
        head = self._topics.head()
        version = head["dataVersion"]
        assert isinstance(version, dict)
        return head | {"dataVersion": version | {"counter": version["counter"] + self._changes}}

    def all(self) -> Iterator[TopicConfig]:
        """Yield all topics as they are now, without the permissions that the broker lacks."""
        return map(self._permitted, list(self._topics.all()))

    def get(self, name: str) -> TopicConfig | None:
        """Return a topic without the permissions that the broker lacks; None when it does not exist."""
        topic = self._topics.get(name)
        return None if topic is None else self._permitted(topic)

    def _permitted(self, topic: TopicConfig) -> TopicConfig:
        lacking = PERM_READ_WRITE & ~self.permission
        return replace(topic, perm=topic.perm & ~lacking) if topic.perm & lacking else topic
