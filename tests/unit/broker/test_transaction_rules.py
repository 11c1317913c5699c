"""From configuration to the rules of checking back: profiles, single keys, RocketMQ's names."""

from __future__ import annotations

from pathlib import Path

import pytest

from gantry.broker.part_settings import transaction_rules
from gantry.broker.settings import loading
from gantry.errors import ConfigError

_H = 3_600_000


def _rules(**flags: object) -> tuple[int, int, int]:
    loaded, _ = loading.load(flags={f"transactions.{name}": value for name, value in flags.items()})
    rules = transaction_rules(loaded)
    return rules.immunity_ms, rules.checks_max, rules.age_max_ms


def test_the_default_is_rocketmq_s_fifteen_checks_and_the_time_that_messages_are_kept() -> None:
    assert _rules() == (6_000, 15, 72 * _H)


def test_the_cloud_profile_asks_for_twelve_hours_however_often() -> None:
    assert _rules(profile="cloud") == (6_000, 0, 12 * _H)


def test_a_key_of_its_own_overrules_the_profile() -> None:
    assert _rules(profile="cloud", checks_max=3, immunity_s=60, age_max_hours=1) == (60_000, 3, _H)


def test_a_broker_conf_says_it_in_rocketmq_s_words(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(
        "transactionTimeOut=3000\ntransactionCheckInterval=2000\ntransactionCheckMax=7\nrejectTransactionMessage=true\n"
    )
    loaded, notices = loading.load(str(path))
    given = loaded.transactions
    assert not notices
    assert (given.immunity_s, given.check_interval_s, given.checks_max, given.enabled) == (3.0, 2.0, 7, False)


def test_an_interval_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="check_interval_s"):
        loading.load(flags={"transactions.check_interval_s": 0})
