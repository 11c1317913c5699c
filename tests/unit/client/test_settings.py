"""Settings that cannot be meant are refused where they are written, not when nothing comes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gantry.client.producing.transactionchecks import CheckSettings
from gantry.client.settings import ConsumerSettings, OrderSettings, ProducerSettings
from gantry.errors import ConfigError


@pytest.mark.parametrize(
    ("make", "given"),
    [
        (ConsumerSettings, {"concurrency": 0}),
        (ConsumerSettings, {"queue_messages_max": 0}),
        (ConsumerSettings, {"bytes_max": -1}),
        (ConsumerSettings, {"stop_timeout_s": -1.0}),
        (ConsumerSettings, {"pull_wait_s": "15"}),
        (ConsumerSettings, {"start_from": "first"}),
        (ConsumerSettings, {"retry_delays_s": ()}),
        (ProducerSettings, {"in_flight_max": 0}),
        (ProducerSettings, {"compression": "zlib"}),
        (OrderSettings, {"lock_valid_s": 0.0}),
        (CheckSettings, {"concurrency": 0}),
    ],
)
def test_the_error_names_the_field(make: Callable[..., object], given: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(given))} is "):
        make(**given)
