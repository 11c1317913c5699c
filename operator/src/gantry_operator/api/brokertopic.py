"""A BrokerTopic as a value: a topic that the brokers of a cluster are to have.

The API server has checked it and put the defaults in (`topicdefinition`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gantry.model.topic import PERM_READ, PERM_READ_WRITE, PERM_WRITE
from gantry_operator.api.declared import About, Kind, about

KIND = "BrokerTopic"
PERMISSIONS = {"ReadWrite": PERM_READ_WRITE, "Read": PERM_READ, "Write": PERM_WRITE, "None": 0}
UNSPECIFIED = "UNSPECIFIED"
MESSAGE_TYPES = (UNSPECIFIED, "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")


@dataclass(frozen=True, slots=True)
class BrokerTopic:
    """The specification of a BrokerTopic, checked and typed; `status` as the API server has it."""

    about: About
    write_queues: int  # of each group
    read_queues: int
    placed: tuple[str, ...]  # b0, b1; none: every group, also later ones
    perm: int
    message_type: str
    body_bytes_max: int | None
    property_count_max: int | None
    status: Mapping[str, Any]

    def is_placed(self, group: str) -> bool:
        """Return whether a group should have the topic."""
        return not self.placed or group in self.placed

    @property
    def attributes(self) -> dict[str, str | None]:
        """Return the wanted values of the topic's attributes on a broker; None: it should not be set."""
        size, count = self.body_bytes_max, self.property_count_max
        return {
            "message.type": None if self.message_type == UNSPECIFIED else self.message_type,
            "message.size.max": None if size is None else str(size),
            "property.count.max": None if count is None else str(count),
        }


def permission_of(perm: int) -> str:
    """Return the specification's word for a broker's permission number."""
    return next(word for word, bits in PERMISSIONS.items() if bits == perm & PERM_READ_WRITE)


def read(document: Mapping[str, Any]) -> BrokerTopic:
    """Read an object of the API server; ValueError when it is not valid."""
    try:
        spec = document["spec"]
        queues, limits = spec["queues"], spec["limits"]
        return BrokerTopic(
            about=about(Kind.TOPIC, document, spec["topicName"]),
            write_queues=int(queues["write"]),
            read_queues=int(queues["read"]),
            placed=tuple(spec["placement"]["groups"]),
            perm=PERMISSIONS[spec["permission"]],
            message_type=spec["messageType"],
            body_bytes_max=limits.get("bodyBytes"),
            property_count_max=limits.get("properties"),
            status=document.get("status", {}),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"this is no {KIND}: {error!r}; install the definition that came with the operator") from error
