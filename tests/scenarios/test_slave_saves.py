"""A slave keeps what its master says before it acknowledges anything behind it; one refusal of its disk is no end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gantry.broker.parts import Parts
from gantry.errors import StoreError
from gantry.store.disk import RealDisk
from testkit.brokerplay import running_broker
from testkit.ports import free_port
from testkit.turning import until


class RefusesOnce(RealDisk):
    """Fails the first time that a file is put into its place."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.refusals = 0

    def rename(self, old: str, new: str) -> None:
        if new.endswith(self.name) and not self.refusals:
            self.refusals += 1
            raise StoreError(f"rename {new}: Input/output error")
        super().rename(old, new)


def deliveries(parts: Parts) -> None:
    parts.delays.follow({"offsetTable": {"3": 17}})


def decisions(parts: Parts) -> None:
    sink = {"home": "broker-a", "batch": 4, "parts": ["0-1"], "groups": ["broker-a"], "aborted": {}, "decidedMs": 1}
    parts.batches.decisions.follow("revenue", sink)
    parts.batches.decisions.file.save_if_changed()


@pytest.mark.parametrize(
    ("name", "told", "what"),
    [("delayOffset.json", deliveries, '"3": 17'), ("sinkDecisions.json", decisions, "revenue")],
    ids=["deliveries", "decisions"],
)
async def test_what_a_slave_was_told_is_saved_although_its_disk_refused_once(
    tmp_path: Path, name: str, told: object, what: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret that members of a group share\n")
    secret.chmod(0o600)
    slave = {
        "role": "SLAVE",
        "id": 1,
        "replication__master": f"127.0.0.1:{free_port()}",
        "replication__secret_file": str(secret),
        "network__ha_port": free_port(),
    }
    disk = RefusesOnce(name)
    async with running_broker(tmp_path, disk, **slave) as broker:
        assert broker.parts is not None and callable(told)
        told(broker.parts)
        file = tmp_path / "store/config" / name
        await until(lambda: file.exists() and what in json.dumps(json.loads(file.read_text())))
        assert disk.refusals == 1
