"""The configuration as it is now.

The tree that `loading.load` made never changes; a change at run time makes a new one, and anyone who obeys one of
the hot keys hears of it.  Changes last until the process ends: the file is the operator's, not the broker's
(RocketMQ writes its broker.conf again).
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
    """Holds the current tree and tells of changes."""

    def __init__(self, config: BrokerConfig, segment_bytes: int | None = None) -> None:
        self.current = config
        # Of the folder that is open: it keeps the size that it was made with, whatever the configuration says.
        self._segment_bytes = config.store.segment_bytes if segment_bytes is None else segment_bytes
        self.version = DataVersion()
        self._listeners: list[Callable[[BrokerConfig], None]] = []

    def on_change(self, listener: Callable[[BrokerConfig], None]) -> None:
        """Hear every new tree."""
        self._listeners.append(listener)

    def update(self, changes: Mapping[str, str], now_ms: int) -> Refusal | None:
        """Change hot keys (dotted names), all or none."""
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
