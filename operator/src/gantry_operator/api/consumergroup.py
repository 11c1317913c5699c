"""A ConsumerGroup as a value: the configuration of a consumer group on a cluster's brokers, and its offsets.

The API server has checked it and put the defaults in (`groupdefinition`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gantry_operator.api.declared import About, Kind, about

KIND = "ConsumerGroup"
EARLIEST_MS, LATEST_MS = 0, -1  # instants, as the request that resets offsets has them
POSITIONS = {"Earliest": EARLIEST_MS, "Latest": LATEST_MS}


@dataclass(frozen=True, slots=True)
class Reset:
    """A reset of the group's offsets; carried out once for each `request_id`."""

    request_id: str
    topic: str
    at_ms: int
    is_forced: bool  # also while members are online


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """The specification of a ConsumerGroup, checked and typed; `status` as the API server has it."""

    about: About
    is_enabled: bool
    may_broadcast: bool
    attempts_max: int
    is_orderly: bool | None  # None: as it is on the brokers
    reset: Reset | None
    status: Mapping[str, Any]


def read(document: Mapping[str, Any]) -> ConsumerGroup:
    """Read an object of the API server; ValueError when it is not valid."""
    try:
        spec = document["spec"]
        reset = spec.get("resetOffset")
        return ConsumerGroup(
            about=about(Kind.CONSUMER_GROUP, document, spec["groupName"]),
            is_enabled=bool(spec["enabled"]),
            may_broadcast=bool(spec["broadcast"]),
            attempts_max=int(spec["retry"]["maxAttempts"]),
            is_orderly=None if spec.get("orderly") is None else bool(spec["orderly"]),
            reset=None if reset is None else _reset(reset),
            status=document.get("status", {}),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"this is no {KIND}: {error!r}; install the definition that came with the operator") from error


def _reset(spec: Mapping[str, Any]) -> Reset:
    target = spec["to"]
    if "timestamp" in target:
        at_ms = int(datetime.fromisoformat(target["timestamp"]).timestamp() * 1000)
    else:
        at_ms = POSITIONS[target["position"]]
    return Reset(spec["requestId"], spec["topic"], max(at_ms, LATEST_MS), bool(spec["force"]))
