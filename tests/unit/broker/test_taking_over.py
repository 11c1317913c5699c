from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from gantry.broker.broker import Broker
from gantry.broker.machine import Machine
from testkit.brokerplay import configuration
from testkit.simdisk import SimDisk


def test_a_wheel_that_was_taken_over_goes_when_the_document_is_saved_however_late() -> None:
    config, disk = configuration(Path("/broker")), SimDisk()
    root = config.store.root
    disk.make_folders(root)
    disk.open(f"{root}/timerwheel", create=True).close()
    story: list[str] = []
    put_off: list[Callable[[], None]] = []
    delays = SimpleNamespace(
        took_over=True, was_ahead=False, recover=lambda wheel: iter(()), save_now=lambda: story.append("saved")
    )
    # A disk without room: the store says False, and tries again later.
    store = SimpleNamespace(settings=config.store, save_corrected=lambda save: bool(put_off.append(save)))
    broker = Broker(config, machine=Machine(disk=disk))
    asyncio.run(broker._recover_delays(cast("Any", SimpleNamespace(delays=delays, store=store))))
    assert not story and disk.exists(f"{root}/timerwheel"), "RocketMQ's word is the only one so far"
    put_off[0]()
    assert story and not disk.exists(f"{root}/timerwheel")
