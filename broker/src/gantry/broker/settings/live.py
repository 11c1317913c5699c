"""The present configuration.

The tree of `loading.load` never changes; a change at run time makes a new one, and the users of hot keys are notified.
Changes last until the process ends, because the broker never writes the operator's file (RocketMQ rewrites its
broker.conf).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gantry.broker.settings import keyrules
from gantry.broker.settings.config import HOT, BrokerConfig
from gantry.broker.settings.sources import replaced
from gantry.errors import ConfigError, Refusal
from gantry.model.topic import DataVersion
from gantry.wire.codes import ResponseCode


class LiveConfig:
    """Holds the present tree and notifies listeners of changes."""

    def __init__(self, config: BrokerConfig, segment_bytes: int | None = None) -> None:
        self.current = config
        # The segment size of the open folder, which may differ from the configured one.
        self._segment_bytes = config.store.segment_bytes if segment_bytes is None else segment_bytes
        self.version = DataVersion()
        self._listeners: list[Callable[[BrokerConfig], None]] = []

    def on_change(self, listener: Callable[[BrokerConfig], None]) -> None:
        """Register a listener that is called with every new tree."""
        self._listeners.append(listener)

    def update(self, changes: Mapping[str, str], now_ms: int) -> Refusal | None:
        """Change hot keys (dotted names), all or none. Return a Refusal when one cannot be changed."""
        cold = sorted(changes.keys() - HOT)
        if cold:
            hot = ", ".join(sorted(HOT))
            return Refusal(
                ResponseCode.NO_PERMISSION,
                f"{', '.join(cold)} cannot change while the broker runs; set it in the file and restart ({hot} can)",
            )
        try:
            config = replaced(self.current, changes, "request")
            keyrules.check(config)
            self._check_folder(config)
        except ConfigError as error:
            return Refusal(ResponseCode.INVALID_PARAMETER, str(error))
        self.current = config
        self.version = self.version.next(now_ms)
        for listener in self._listeners:
            listener(config)
        return None

    def _check_folder(self, config: BrokerConfig) -> None:
        body, most = config.messages.body_bytes_max, keyrules.body_bytes_most(self._segment_bytes)
        if body > most:
            raise ConfigError(
                f"messages.body_bytes_max {body}: expected at most {most}, since two bodies have to fit into a segment "
                f"and the segments of this folder have {self._segment_bytes} bytes"
            )
