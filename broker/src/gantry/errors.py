"""What can go wrong, sorted by who must act.

    ProtocolError   who broke the protocol?            they did: close that connection; we did: a bug
    RefusedError    did the broker understand, and say no?  the client looks at the code
    NotMasterError  did we ask the wrong replica?      refresh the route
    StoreError      can this store be trusted?         disk full: refuse writes, go on; else the process ends

Frequent refusals are values (`Refusal`), because in a batch one bad message must not unwind the loop.
An unknown outcome is a class of its own: a request that was sent and never answered may have been
carried out, and a producer has to treat that differently from a refusal.

Foreign exceptions are translated once, at the boundary (`store.disk`, `transport`), with `raise ... from`.
Texts name the thing, the expected and the found; what the user can do about it follows after a semicolon.
"""

from __future__ import annotations

from typing import NamedTuple


class Refusal(NamedTuple):
    """An expected refusal, as a value: a response code and a remark for the client."""

    code: int
    remark: str


class GantryError(Exception):
    """Everything this package raises on purpose."""


class ProtocolError(GantryError):
    """Bytes or calls that the protocol does not allow."""


class RemoteProtocolError(ProtocolError):
    """The other side broke the protocol; its connection is closed, other connections are not affected."""


class LocalProtocolError(ProtocolError):
    """We broke the protocol: a bug of ours, logged with its stack."""


# Codes of the store and of flow control: the same request may succeed on another group or a moment later.
# Source: the retry set of RocketMQ's DefaultMQProducer.
_RETRIABLE_CODES = frozenset({1, 2, 14, 16, 17, 204, 205, 1500})
_STALE_ROUTE_CODES = frozenset({16, 17})


class RefusedError(GantryError):
    """The broker understood and said no, with RocketMQ's response code and a remark."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"refused with code {code}: {remark}")
        self.code = code
        self.remark = remark

    @property
    def retriable(self) -> bool:
        """Whether another group, or the same one a moment later, may say yes."""
        return self.code in _RETRIABLE_CODES

    @property
    def stale_route(self) -> bool:
        """Whether the route that led here should be asked for again."""
        return self.code in _STALE_ROUTE_CODES


class NotMasterError(GantryError):
    """The replica asked is not the master; `hint` is the master's address when it is known, else empty."""

    def __init__(self, epoch: int, hint: str) -> None:
        super().__init__(f"not the master in epoch {epoch}; the master is {hint or 'not known here'}")
        self.epoch = epoch
        self.hint = hint


class UnreachableError(GantryError):
    """Nothing was sent: the address did not accept a connection."""


class ClosedError(UnreachableError):
    """Nothing was sent: the client was stopped, or it belongs to the process that this one was forked from."""


class OutcomeUnknownError(GantryError):
    """Sent, no answer: it may have been carried out or not."""


class ConfigError(GantryError):
    """An invalid configuration; the text names the key, the file and the nearest known key."""


class StoreError(GantryError):
    """The store could not carry out an operation; the branches say whether it can still be trusted."""


class CorruptRecordError(StoreError):
    """Stored bytes that are not what was written."""


class SyncFailedError(StoreError):
    """A failed fdatasync is final: Linux marks the failed pages clean, so trying again proves nothing."""


class DiskFullError(StoreError):
    """No room: writes are refused, reads go on, and writing resumes by itself when there is room again."""
