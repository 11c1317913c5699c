"""The file of users while the server runs: what cannot be read now, and the task that reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gantry.queues import users
from gantry.queues.server import QueueServer, QueueServerSettings
from gantry.queues.users import Users
from testkit.turning import until


async def test_a_file_that_could_not_be_read_once_is_read_when_it_can_be_though_it_did_not_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "users"
    path.write_text("alice one\n")
    known = Users(path)
    path.write_text("alice another\n")
    with monkeypatch.context() as context:

        def fails(self: Path, mode: str) -> None:
            raise OSError(24, "Too many open files")

        context.setattr(Path, "open", fails)
        for _ in range(3):
            known._look(path)
    assert known.secrets == {"alice": "one"}
    assert len([one for one in caplog.records if "Too many open files" in one.message]) == 1
    known._look(path)
    assert known.secrets == {"alice": "another"}


async def test_a_server_that_follows_its_users_no_more_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "users"
    path.write_text("alice one\n")
    ended: list[bool] = []
    server = QueueServer(
        QueueServerSettings(["127.0.0.1:1"], [b"k" * 16], port=0, users=path), lambda: ended.append(True)
    )

    def broken(self: Users, path: Path) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Users, "_look", broken)
    monkeypatch.setattr(users, "_EVERY_S", 0.01)
    await server.start()
    await until(lambda: ended)
    assert server.failure is not None and "can't start new thread" in server.failure
    await server.stop()


async def test_a_server_that_stops_is_not_ready_any_more() -> None:
    server = QueueServer(QueueServerSettings(["127.0.0.1:1"], [b"k" * 16], port=0), lambda: None)
    assert not server._healthy()[0]
    await server.start()
    assert server._healthy()[0]
    await server.stop()
    assert not server._healthy()[0] and server._ready() == (False, "the server of HTTP queues ends")
