"""What may change while the broker runs, and what may not."""

from __future__ import annotations

from gantry.broker.settings.config import BrokerConfig, Role
from gantry.broker.settings.live import LiveConfig
from gantry.broker.settings.sections import ReplicationConfig

LARGEST = ReplicationConfig(
    secret_file="s", register="file:/r", ordinal=63, members=tuple(f"127.0.0.1:{port}" for port in range(1, 65))
)


def test_a_hot_key_makes_a_new_tree_that_listeners_hear() -> None:
    first = BrokerConfig()
    live = LiveConfig(first)
    heard: list[BrokerConfig] = []
    live.on_change(heard.append)
    assert live.update({"permission": "4", "messages.body_bytes_max": "1MiB"}, 17) is None
    assert heard == [live.current] and (live.current.permission, first.permission) == (4, 6)
    assert live.current.messages.body_bytes_max == 1 << 20
    assert (live.version.counter, live.version.timestamp) == (1, 17)


def test_all_or_nothing() -> None:
    live = LiveConfig(BrokerConfig())
    cold = live.update({"permission": "4", "store.root": "/elsewhere"}, 17)
    assert cold is not None and cold.code == 16 and "store.root cannot change" in cold.remark
    ill_typed = live.update({"permission": "4", "messages.body_bytes_max": "much"}, 17)
    assert ill_typed is not None and ill_typed.code == 29
    senseless = live.update({"permission": "5"}, 17)
    assert senseless is not None and senseless.code == 29
    assert live.current == BrokerConfig() and live.version.counter == 0


def test_a_body_that_the_open_folder_cannot_hold_twice_is_refused() -> None:
    live = LiveConfig(BrokerConfig(), segment_bytes=4 << 20)
    refused = live.update({"messages.body_bytes_max": "3MiB"}, 17)
    assert refused is not None and "expected at most 2064384" in refused.remark
    assert live.update({"messages.body_bytes_max": "2064384"}, 17) is None


def test_the_last_member_of_the_largest_group_changes_keys_too() -> None:
    live = LiveConfig(BrokerConfig(role=Role.SLAVE, id=64, replication=LARGEST))
    assert live.update({"permission": "4"}, 17) is None
