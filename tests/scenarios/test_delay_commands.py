"""`gantry delay`, and a delayed send with our client, against a real broker in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gantry.client.producer import Producer
from gantry.model.message import Message
from testkit.patience import HANG_S
from testkit.process import GantryProcess
from testkit.rawclient import RawClient


def gantry(namesrv: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gantry.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env={**os.environ, "NAMESRV_ADDR": namesrv},
        check=False,
    )


async def _send(namesrv: str, *messages: Message) -> list[str]:
    async with Producer(nameserver=namesrv, group="g") as producer:
        return [(await producer.send(message)).message_id for message in messages]


@pytest.mark.shows("delay ls --topic", "delay ls --count")
def test_what_is_pending_is_listed_and_cancelled(tmp_path: Path) -> None:
    with GantryProcess(tmp_path / "data") as process, RawClient(process.broker) as client:
        host, port = process.addresses["nameserver"]
        namesrv = f"{host}:{port}"
        far = Message("later", b"far", keys=("order-1",), delay_s=3600)
        level = Message("later", b"level", delay_level=18)
        soon = Message("later", b"soon", delay_s=1.0)
        far_id, level_id, _ = asyncio.run(_send(namesrv, far, level, soon))
        until = time.monotonic() + HANG_S
        while not any(client.read("later", queue_id) for queue_id in range(8)):
            assert time.monotonic() < until, "the third is not delivered"
        listed = gantry(namesrv, "delay", "ls", "--output", "json")
        rows = json.loads(listed.stdout)
        assert [(row["id"], row["level"], row["keys"]) for row in rows] == [(far_id, 0, "order-1"), (level_id, 18, "")]
        assert json.loads(gantry(namesrv, "delay", "ls", "--topic", "other", "--output", "json").stdout) == []
        first = gantry(namesrv, "delay", "ls", "--topic", "later", "--count", "1", "--output", "json")
        assert len(json.loads(first.stdout)) == 1
        for wanted in (far_id, level_id):
            done = gantry(namesrv, "delay", "cancel", wanted)
            assert (done.returncode, done.stdout) == (0, f"message/{wanted} cancelled\n")
        assert gantry(namesrv, "delay", "cancel", far_id).returncode == 1
        empty = gantry(namesrv, "delay", "ls")
        assert empty.returncode == 0 and "no message waits" in empty.stdout + empty.stderr
        assert gantry(namesrv, "delay", "ls", "--count", "0").returncode == 2
        process.stop()
