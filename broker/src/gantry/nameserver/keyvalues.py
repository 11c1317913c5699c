"""Small configuration that tools leave with a name server: namespace -> key -> value.

In practice there is one namespace, ORDER_TOPIC_CONFIG, with `broker:queues;broker:queues` per topic.  The
table can be written as RocketMQ's kvConfig.json and read back from it; where, and whether at all, is the
server's business.  Bounded, because anybody may write to it.
"""

from __future__ import annotations

import json

from gantry.errors import ConfigError, Refusal
from gantry.wire.codes import ResponseCode

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
_ENTRIES_MAX = 100_000
_TEXT_MAX = 32_768  # of one name or value


class KeyValues:
    """The table; `changed` counts up with every change."""

    def __init__(self) -> None:
        self.changes = 0
        self._count = 0
        self._tables: dict[str, dict[str, str]] = {}

    def put(self, namespace: str, key: str, value: str) -> Refusal | None:
        """Set one value."""
        if max(len(namespace), len(key), len(value)) > _TEXT_MAX:
            return Refusal(ResponseCode.INVALID_PARAMETER, f"names and values have at most {_TEXT_MAX} characters")
        if self.get(namespace, key) is None:
            if self._count >= _ENTRIES_MAX:
                return Refusal(ResponseCode.SYSTEM_ERROR, f"the key-value table is full, {_ENTRIES_MAX} entries")
            self._count += 1
        self._tables.setdefault(namespace, {})[key] = value
        self.changes += 1
        return None

    def get(self, namespace: str, key: str) -> str | None:
        """One value, or None."""
        return self._tables.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Forget one value; nothing happens when it is not there."""
        if self._tables.get(namespace, {}).pop(key, None) is not None:
            self.changes += 1
            self._count -= 1

    def table(self, namespace: str) -> dict[str, str] | None:
        """All of a namespace, or None when nothing was ever put there."""
        table = self._tables.get(namespace)
        return None if table is None else dict(table)

    def to_json(self) -> bytes:
        """The content of kvConfig.json."""
        return json.dumps({"configTable": self._tables}, sort_keys=True, indent=1).encode()

    def load_json(self, content: bytes) -> None:
        """Take over the content of kvConfig.json; what is there already is forgotten."""
        try:
            tables = json.loads(content)["configTable"]
            loaded = {
                str(namespace): {str(key): str(value) for key, value in table.items()}
                for namespace, table in tables.items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"kvConfig.json: expected an object configTable of objects, found {error}") from error
        self._tables = loaded
        self._count = sum(map(len, loaded.values()))
