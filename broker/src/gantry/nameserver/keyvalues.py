"""The key-values that tools store in a name server: namespace -> key -> value.

In practice there is one namespace, ORDER_TOPIC_CONFIG, with `broker:queues;broker:queues` for each topic.  The table
can be written as RocketMQ's kvConfig.json and read back from it; `server` does that.  Its size is bounded, because
every client may write to it.
"""

from __future__ import annotations

import json

from gantry.errors import ConfigError, Refusal
from gantry.wire.codes import ResponseCode

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
_ENTRIES_MAX = 100_000
_TEXT_MAX = 32_768  # of one name or value
_CHARS_MAX = 1 << 20  # of all together: the whole table is written with every change, and has to fit into one answer


class KeyValues:
    """The table; `changes` counts its changes."""

    def __init__(self) -> None:
        self.changes = 0
        self._count = 0
        self._chars = 0
        self._tables: dict[str, dict[str, str]] = {}

    def put(self, namespace: str, key: str, value: str) -> Refusal | None:
        """Set one value. Return a Refusal when it is too long or the table is full."""
        if max(len(namespace), len(key), len(value)) > _TEXT_MAX:
            return Refusal(ResponseCode.INVALID_PARAMETER, f"names and values have at most {_TEXT_MAX} characters")
        old = self.get(namespace, key)
        more = len(value) - len(old) if old is not None else _chars(namespace, key, value)
        if old is None and self._count >= _ENTRIES_MAX:
            return Refusal(ResponseCode.SYSTEM_ERROR, f"the key-value table is full, {_ENTRIES_MAX} entries")
        if more > 0 and self._chars + more > _CHARS_MAX:
            return Refusal(ResponseCode.SYSTEM_ERROR, f"the key-value table is full, {_CHARS_MAX} characters")
        self._count += old is None
        self._chars += more
        self._tables.setdefault(namespace, {})[key] = value
        self.changes += 1
        return None

    def get(self, namespace: str, key: str) -> str | None:
        """Return one value, or None."""
        return self._tables.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Remove one value; no effect when there is none."""
        table = self._tables.get(namespace, {})
        old = table.pop(key, None)
        if old is None:
            return
        self.changes += 1
        self._count -= 1
        self._chars -= _chars(namespace, key, old)
        if not table:
            del self._tables[namespace]

    def table(self, namespace: str) -> dict[str, str] | None:
        """Return all key-values of a namespace; None when there are none."""
        table = self._tables.get(namespace)
        return None if table is None else dict(table)

    def to_json(self) -> bytes:
        """Return the contents of kvConfig.json."""
        return json.dumps({"configTable": self._tables}, sort_keys=True, indent=1).encode()

    def load_json(self, content: bytes) -> None:
        """Replace the table by the contents of a kvConfig.json. ConfigError when they are invalid."""
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
        self._chars = sum(
            _chars(namespace, key, value) for namespace, table in loaded.items() for key, value in table.items()
        )


def _chars(namespace: str, key: str, value: str) -> int:
    return len(namespace) + len(key) + len(value)
