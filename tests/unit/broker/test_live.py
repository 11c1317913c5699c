"""What may change while the broker runs, and what may not."""

from __future__ import annotations

from gantry.broker.config import BrokerConfig
from gantry.broker.live import LiveConfig


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
