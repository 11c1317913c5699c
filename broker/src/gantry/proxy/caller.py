"""Who calls: what a client says about itself in the metadata of each call (facts: protocol, section 10.1).

Only `x-mq-client-id` is required.  The language is a label, and may be one that nobody knows: Node.js calls itself
HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gantry.model.names import client_fault
from gantry.proxy import messaging_pb2 as pb
from gantry.proxy.faults import FaultError

_POLLING_CODE_FROM = "5.0.3"  # RocketMQ compares the versions as texts


@dataclass(frozen=True, slots=True)
class Caller:
    """One client; `peer` is the address it calls from, as text `host:port`."""

    client_id: str
    language: str = ""
    version: str = ""
    peer: str = ""

    @property
    def is_node(self) -> bool:
        """Whether it is RocketMQ's client for Node.js."""
        return self.language in ("HTTP", "NODE_JS")

    @property
    def knows_polling_code(self) -> bool:
        """Whether it knows ILLEGAL_POLLING_TIME."""
        return self.version >= _POLLING_CODE_FROM


def read(metadata: Iterable[tuple[str, str | bytes]], peer: str) -> Caller:
    """Return the caller; FaultError CLIENT_ID_REQUIRED when it has no usable id."""
    found = {key: value for key, value in metadata if isinstance(value, str)}
    client_id = found.get("x-mq-client-id", "").strip()
    fault = client_fault(client_id)
    if not client_id:
        raise FaultError(pb.CLIENT_ID_REQUIRED, "client id cannot be empty; send it as x-mq-client-id")
    if fault is not None:
        raise FaultError(pb.CLIENT_ID_REQUIRED, fault)
    version = found.get("x-mq-client-version", "")
    return Caller(client_id, found.get("x-mq-language", "").upper(), version, peer)

