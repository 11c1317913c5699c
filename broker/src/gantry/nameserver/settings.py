"""The settings of a name server.

Most come from the configuration file, flags or environment before the start.  Four switches may change while it runs,
by UPDATE_NAMESRV_CONFIG (318).  They have RocketMQ's names on the wire (NamesrvConfig) and are not persisted: a restart
takes them from the configuration again.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path

from gantry.errors import Refusal
from gantry.model.keys import read, switch, table
from gantry.wire.codes import ResponseCode

RUNTIME_KEYS = {
    "orderMessageEnable": "order_message",
    "returnOrderTopicConfigToBroker": "return_order_topics",
    "deleteTopicWithBrokerRegistration": "registration_deletes_topics",
    "enableAllTopicList": "list_all_topics",
}
# RocketMQ refuses these keys, whatever the value; other unknown keys are ignored.
_FIXED_KEYS = frozenset({"kvConfigPath", "configStorePath", "configBlackList", "rocketmqHome", "listenPort"})


@dataclass(frozen=True, slots=True)
class Switches:
    """The settings that may change while the name server runs."""

    order_message: bool = switch(False, "Whether routes of order topics carry their configuration.")
    return_order_topics: bool = switch(True, "Whether registrations are answered with the order topics.")
    registration_deletes_topics: bool = switch(
        False, "Whether a registration of all topics of a broker removes those that it does not name."
    )
    list_all_topics: bool = switch(True, "Whether clients may ask for the list of all topics.")

    def to_text(self) -> str:
        """Return `key=value` lines with RocketMQ's names."""
        pairs = ((key, getattr(self, name)) for key, name in RUNTIME_KEYS.items())
        return "".join(f"{key}={'true' if value else 'false'}\n" for key, value in pairs)

    def changed(self, text: str) -> Switches | Refusal:
        """Return the switches after `key=value` lines; a Refusal, with nothing changed, when one key may not be set."""
        changes: dict[str, bool] = {}
        for line in text.splitlines():
            key, separator, value = line.strip().partition("=")
            if not separator or key.startswith("#"):
                continue
            if key in _FIXED_KEYS:
                return Refusal(ResponseCode.NO_PERMISSION, f"Can not update config in black list. key: {key}")
            if key in RUNTIME_KEYS:
                entry = table(Switches)[RUNTIME_KEYS[key]]
                try:
                    changes[RUNTIME_KEYS[key]] = read(value, entry) is True
                except ValueError as error:
                    return Refusal(ResponseCode.INVALID_PARAMETER, f"{key} {value[:80]!r}: {error}")
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class NameServerSettings:
    """Addresses to listen on, files, and the initial switches."""

    host: str = "0.0.0.0"
    port: int = 9876
    http_host: str = "0.0.0.0"
    http_port: int | None = 9404  # of health and metrics; None: no HTTP server
    kv_path: Path | None = None  # kvConfig.json; None keeps key-values in memory only
    switches: Switches = Switches()
    awaits_brokers: bool = False  # not ready while no broker has registered (see `readiness`)


assert set(RUNTIME_KEYS.values()) == {field.name for field in fields(Switches)}, "a switch without a wire name"
