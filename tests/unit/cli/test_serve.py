from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from gantry.cli.serve import reachable, serve
from gantry.errors import ConfigError


class FakeServer:
    """Starts when told to, notes what was asked of it, and may fail."""

    def __init__(self, end: Callable[[], None], *, never_starts: bool = False, fails: str | None = None) -> None:
        self.failure = fails
        self.story: list[str] = []
        self._end = end
        self._never_starts = never_starts

    async def start(self) -> None:
        self.story.append("start")
        if self._never_starts:
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        self.story.append("started")

    async def stop(self) -> None:
        self.story.append("stop")

    def ready(self) -> str:
        """Called when it serves; whatever should end it, ends it now."""
        if self.failure:
            self._end()
        else:
            os.kill(os.getpid(), signal.SIGTERM)
        return "here=127.0.0.1:1"


def _served(capsys: pytest.CaptureFixture[str], **how: object) -> tuple[int, FakeServer, str]:
    made: list[FakeServer] = []

    def make(end: Callable[[], None]) -> FakeServer:
        made.append(FakeServer(end, **how))  # type: ignore[arg-type]
        return made[0]

    code = serve(make, FakeServer.ready, lambda server: server.failure)
    return code, made[0], capsys.readouterr().out


def test_sigterm_stops_it_in_order_with_exit_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    code, server, said = _served(capsys)
    assert (code, server.story) == (0, ["start", "started", "stop"])
    assert said == "ready here=127.0.0.1:1\n"


def test_a_server_that_cannot_go_on_ends_with_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    code, server, _ = _served(capsys, fails="the disk lied")
    assert (code, server.story[-1]) == (1, "stop")


def test_a_start_can_be_called_off(capsys: pytest.CaptureFixture[str]) -> None:
    code, server, said = _served(capsys, never_starts=True)
    assert (code, server.story) == (0, ["start", "stop"])
    assert said == ""


def test_a_server_that_follows_another_one_is_not_made_to_wait_for_the_garbage_collector(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    swept: list[int] = []
    made: list[FakeServer] = []
    monkeypatch.setattr(gc, "collect", lambda: swept.append(len(made)))

    class Changing(FakeServer):
        async def start(self) -> None:
            await super().start()
            if len(made) < 3:
                asyncio.get_running_loop().call_soon(self._end)
            else:
                os.kill(os.getpid(), signal.SIGTERM)

    def make(end: Callable[[], None]) -> FakeServer:
        made.append(Changing(end))
        return made[-1]

    code = serve(make, lambda server: "here", lambda server: None, again=lambda server: len(made) < 3)
    assert (code, len(made), swept) == (0, 3, [1])
    assert capsys.readouterr().out == "ready here\n"


def test_a_start_that_fails_is_stopped_and_told() -> None:
    stopped: list[bool] = []

    class Broken:
        async def start(self) -> None:
            raise ConfigError("cannot be meant")

        async def stop(self) -> None:
            stopped.append(True)

    with pytest.raises(ConfigError, match="cannot be meant"):
        serve(lambda end: Broken(), lambda server: "")
    assert stopped == [True]


@pytest.mark.parametrize(
    ("bound", "told"),
    [("0.0.0.0", "127.0.0.1:9"), ("::", "[::1]:9"), ("10.1.2.3", "10.1.2.3:9"), ("fe80::1", "[fe80::1]:9")],
)
def test_an_address_that_stands_for_all_is_told_as_this_machines_own(bound: str, told: str) -> None:
    assert reachable(bound, 9) == told


def test_who_is_asked_to_stop_while_it_starts_again_has_a_successor_that_only_stops(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made: list[FakeServer] = []

    def make(end: Callable[[], None]) -> FakeServer:
        made.append(FakeServer(end))
        return made[-1]

    assert serve(make, FakeServer.ready, again=lambda server: True) == 0
    assert [server.story for server in made] == [["start", "started", "stop"], ["stop"]]
    assert capsys.readouterr().out.count("ready") == 1


_HANGS = """
import asyncio, sys, threading
from gantry.cli import serve

class Server:
    async def start(self):
        pass

    def ready(self):
        if sys.argv[1] == "serving":
            asyncio.get_running_loop().call_soon(self.hang)
        return "here"

    async def stop(self):
        self.hang()

    def hang(self):
        print("hangs", flush=True)
        threading.Event().wait()

if sys.argv[2] == "asyncio":
    sys.modules["uvloop"] = None
if sys.argv[3] == "mute":
    sys.stderr = None
serve.serve(lambda end: Server(), Server.ready)
"""


@pytest.mark.parametrize(
    ("part", "loop", "voice"),
    [
        ("serving", "asyncio", "heard"),
        ("serving", "uvloop", "heard"),
        ("stopping", "asyncio", "heard"),
        ("stopping", "uvloop", "mute"),
    ],
)
def test_a_second_signal_ends_it_at_once_while_its_loop_waits_for_a_disk(part: str, loop: str, voice: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HANGS, part, loop, voice], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready here\n"
            if part == "stopping":
                process.send_signal(signal.SIGTERM)
            assert process.stdout.readline() == "hangs\n"
            if part == "serving":
                process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode in (128 + signal.SIGINT, 128 + signal.SIGTERM)
    assert said.splitlines()[-1:] == (["gantry: asked twice, ending at once"] if voice == "heard" else [])
