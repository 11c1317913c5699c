"""What each option of `gantry local` does to the folder of a cluster, and to processes that are only noted here."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gantry.cli import local
from gantry.local.folder import Folder
from gantry.local.layout import Links
from testkit.commandline import PARSERS, run

Gantry = Callable[..., Any]
SENT: list[tuple[str, signal.Signals]] = []


@pytest.fixture
def gantry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gantry:
    """`gantry local` on a folder of its own; nothing is started, signals go to SENT."""
    SENT.clear()

    def send(uid: str, name: str, number: signal.Signals) -> bool:
        SENT.append((name, number))
        return True

    monkeypatch.setattr(local.processes, "send", send)
    monkeypatch.setattr(local, "serve", lambda *_: 0)
    monkeypatch.setattr(local, "_until_carried_out", lambda *_: None)

    def call(command: str, *arguments: str) -> Any:
        done = run("local", command, "--dir", str(tmp_path / "cluster"), *arguments)
        assert done.code == 0, done
        return done

    return call


def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "cluster")


@pytest.mark.shows("local up --groups", "local up --replicas", "local up --profile", "local up --failover-timers")
@pytest.mark.shows("local up --links", "local up --set")
def test_a_cluster_is_made_as_it_was_asked_for(gantry: Gantry, tmp_path: Path) -> None:
    shape = ["--groups", "2", "--replicas", "4", "--profile", "fast", "--failover-timers", "fast"]
    gantry("up", *shape, "--links", "proxy", "--set", "pull.count_max=7")
    layout = folder(tmp_path).load().layout
    assert (layout.groups, layout.replicas, layout.profile, layout.timers) == (2, 4, "fast", "fast")
    assert layout.links is Links.PROXY and layout.settings == {"pull.count_max": "7"}


@pytest.mark.shows("local kill --keep-down", "local stop --keep-down")
@pytest.mark.parametrize(("command", "number"), [("kill", signal.SIGKILL), ("stop", signal.SIGTERM)])
def test_who_is_kept_down_is_not_started_again(
    command: str, number: signal.Signals, gantry: Gantry, tmp_path: Path
) -> None:
    gantry("up", "--links", "direct")
    gantry(command, "broker-a/1")
    assert not folder(tmp_path).load().down
    said = gantry(command, "broker-a/2", "--keep-down").out
    assert folder(tmp_path).load().down == {"broker-a-2"} and said.startswith("broker-a-2 ")
    assert [("broker-a-1", number), ("broker-a-2", number)] == SENT


@pytest.mark.shows("local kill --master", "local stop --master", "local pause --master", "local resume --master")
@pytest.mark.shows("local partition --master", "local heal --master", "local start --master")
@pytest.mark.parametrize("command", ["kill", "stop", "pause", "resume", "partition", "heal", "start"])
def test_the_master_is_who_leads_by_the_register(
    command: str, gantry: Gantry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def second(*_: object) -> str:
        return "broker-a-1"

    monkeypatch.setattr(local, "_master", second)
    gantry("up", "--links", "proxy")
    here = folder(tmp_path)
    if command == "start":
        here.keep_down("broker-a-1", "broker-a-2")
        done = run("local", "start", "--dir", str(here.path), "--master")
        assert here.load().down == {"broker-a-2"} and "the supervisor is gone" in done.err
        return
    if command == "heal":
        gantry("partition", "broker-a/1", "broker-a/2")
    assert "broker-a-1 " in gantry(command, "--master").out
    cut = {"partition": {"broker-a-1"}, "heal": {"broker-a-2"}}.get(command)
    assert here.load().cuts.members == cut if cut else [name for name, _ in SENT] == ["broker-a-1"]


@pytest.mark.shows("local partition --from", "local partition --to", "local partition --both-ways")
@pytest.mark.shows("local heal --from", "local heal --to", "local heal --both-ways")
def test_ways_are_cut_and_healed_in_the_directions_that_are_named(gantry: Gantry, tmp_path: Path) -> None:
    gantry("up", "--links", "proxy")
    here = folder(tmp_path)

    def ways() -> set[str]:
        return {str(way) for way in here.load().cuts.ways}

    gantry("partition", "--from", "broker-a/0", "--to", "broker-a/1", "outside")
    assert ways() == {"broker-a-0>broker-a-1", "broker-a-0>outside"}
    gantry("partition", "--from", "broker-a/0", "--to", "broker-a/1", "--both-ways")
    assert ways() == {"broker-a-0>broker-a-1", "broker-a-1>broker-a-0", "broker-a-0>outside"}
    gantry("heal", "--from", "broker-a/0", "--to", "outside")
    gantry("heal", "--from", "broker-a/1", "--to", "broker-a/0", "--both-ways")
    assert ways() == set()


@pytest.mark.shows("local status --output")
def test_the_state_is_told_to_people_and_programs(gantry: Gantry) -> None:
    gantry("up", "--links", "direct")
    assert json.loads(gantry("status", "--output", "json").out)
    assert "broker-a" in gantry("status", "--output", "table").out


@pytest.mark.shows(
    "local up --dir", "local status --dir", "local kill --dir", "local stop --dir", "local pause --dir",
    "local resume --dir", "local partition --dir", "local heal --dir", "local start --dir", "local handover --dir",
    "local down --dir", "local wires --dir",
)  # fmt: skip
@pytest.mark.parametrize("command", [name for name in PARSERS if name.startswith("local ") and name != "local up"])
def test_a_folder_without_a_cluster_is_named(command: str, tmp_path: Path) -> None:
    needed = ["broker-a/0"] if command == "local handover" else []
    done = run(*command.split(" "), "--dir", str(tmp_path), *needed)
    assert done.code == 2 and f"gantry local up --dir {tmp_path}" in done.err
