"""HTTP queues and topics while no broker has a master: nothing is missing then, and nothing was changed."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gantry.client.admin import Admin
from testkit.mnscalls import MnsCaller
from testkit.patience import HANG_S
from testkit.process import GantryProcess

KEY = "9f3c1d5a7b8e2064c1f09a8d7e6b5c4a39f3c1d5a7b8e2064c1f09a8d7e6b5c4\n"


def started(folder: Path, *words: str) -> GantryProcess:
    folder.parent.mkdir(exist_ok=True)
    return GantryProcess(folder, command=[sys.executable, "-m", "gantry.cli.main", *words])


def broker(folder: Path, name_server: str) -> GantryProcess:
    return started(folder, "broker", "--data", str(folder), "--namesrv", name_server)


@pytest.fixture
def name_server(tmp_path: Path) -> Iterator[str]:
    words = ("nameserver", "--nameserver-port", "0", "--bind", "127.0.0.1", "--http-port", "-1")
    with started(tmp_path / "names/server", *words) as process:
        yield "{}:{}".format(*process.addresses["nameserver"])


def _until_masters(name_server: str, count: int) -> None:
    async def masters() -> int:
        async with Admin(nameserver=name_server) as admin:
            return len((await admin.cluster()).masters())

    _until(lambda: asyncio.run(masters()) == count)


def _until(holds: Callable[[], bool]) -> None:
    deadline, pause = time.monotonic() + HANG_S, threading.Event()
    while not holds():
        assert time.monotonic() < deadline, "it does not happen"
        pause.wait(0.05)


def test_without_a_master_nothing_is_answered_as_missing_or_deleted(tmp_path: Path, name_server: str) -> None:
    keys = tmp_path / "handle.key"
    keys.write_text(KEY)
    keys.chmod(0o600)
    store = tmp_path / "broker/store"
    words = ["queues", "--namesrv", name_server, "--queues-port", "0", "--http-port", "-1"]
    words += ["--handle-key-file", str(keys)]
    with started(tmp_path / "before/server", *words) as before, started(tmp_path / "after/server", *words) as after:
        knows, fresh = (MnsCaller(one.addresses["queues"]) for one in (before, after))
        with knows, fresh, broker(store, name_server) as process:
            _until_masters(name_server, 1)
            _until(lambda: knows.put("kept", VisibilityTimeout=3600).status == 201)
            assert knows.call("PUT", "/topics/news", "<Topic/>").status == 201
            assert knows.send("kept", "first").status == knows.send("kept", "second").status == 201
            handle = knows.receive("kept").text("ReceiptHandle")
            process.kill()
            _until_masters(name_server, 0)
            for mns in (fresh, knows):
                answers = [
                    mns.call("DELETE", "/queues/kept"),
                    mns.call("DELETE", "/topics/news"),
                    mns.call("GET", "/queues"),
                    mns.call("GET", "/queues/kept"),
                    mns.put("kept", VisibilityTimeout=3600),
                ]
                assert [one.code for one in answers] == ["InternalError"] * len(answers)
            assert fresh.send("kept", "third").code == fresh.delete("kept", handle).code == "InternalError"
        with knows, fresh, broker(store, name_server):
            _until_masters(name_server, 1)
            _until(lambda: fresh.call("GET", "/queues/kept").status == 200)
            assert fresh.receive("kept", wait_s=10).text("MessageBody") == "second"
            assert fresh.delete("kept", handle).status == 204
            assert fresh.call("GET", "/topics/news").status == 200
