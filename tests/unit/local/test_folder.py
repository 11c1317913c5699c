from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gantry.errors import ConfigError, StoreError
from gantry.local.cuts import OUTSIDE, Cuts, Way
from gantry.local.folder import ClusterFile, Folder
from gantry.local.layout import Layout, Links, Ports, Who
from gantry.replication.register import RegisterGoneError
from gantry.replication.registerfile import FileRegister
from gantry.store.disk import RealDisk
from testkit.registers import ACTIVE

PORTS = Ports().shifted(40)
LAYOUT = Layout("0123456789abcdef", 1, 3, "durable", "fast", Links.PROXY, 7, PORTS, {"pull.count_max": "9"})


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "cluster")
    made.make(LAYOUT)
    return made


def test_what_was_made_is_read_again(folder: Folder) -> None:
    assert folder.load() == ClusterFile(LAYOUT)
    changed = folder.change(lambda state: replace(state, supervisor="1/2/boot"))
    assert folder.load() == changed and changed.supervisor == "1/2/boot"


def test_the_secret_is_made_once_and_for_its_owner_only(folder: Folder) -> None:
    secret = folder.secret_file.read_text()
    folder.make(LAYOUT)
    assert folder.secret_file.read_text() == secret and len(secret.strip()) == 64
    assert folder.secret_file.stat().st_mode & 0o077 == 0


def test_who_is_kept_down_may_run_again(folder: Folder) -> None:
    folder.keep_down("broker-a-0", "broker-a-1")
    assert folder.let_run("broker-a-0").down == {"broker-a-1"} == folder.load().down


def test_who_is_cut_off_does_not_reach_the_registers(folder: Folder) -> None:
    reached = folder.member(Who(0, 1)) / "reach" / "broker-a.json"
    folder.set_cuts(Cuts())
    (folder.registers / "broker-a.json").write_text("{}")
    assert reached.exists()
    alone = Cuts(frozenset({"broker-a-1"}))
    assert folder.set_cuts(alone).cuts == alone == folder.load().cuts
    assert not reached.exists() and (folder.member(Who(0, 0)) / "reach" / "broker-a.json").exists()
    folder.set_cuts(Cuts())
    assert reached.exists()


@pytest.mark.parametrize("way", [Way("broker-a-1", OUTSIDE), Way(OUTSIDE, "broker-a-1")], ids=str)
def test_a_register_is_out_of_reach_when_either_its_questions_or_its_answers_are_lost(folder: Folder, way: Way) -> None:
    reached = folder.member(Who(0, 1)) / "reach" / "broker-a.json"
    (folder.registers / "broker-a.json").write_text("{}")
    folder.set_cuts(Cuts(ways=frozenset({way, Way("broker-a-1", "broker-a-0")})))
    assert not reached.exists()
    folder.set_cuts(Cuts(ways=frozenset({Way("broker-a-1", "broker-a-0")})))
    assert reached.exists()


async def test_a_register_is_gone_for_everybody_while_all_of_the_cluster_ends(folder: Folder) -> None:
    register = FileRegister(f"{folder.registers}/broker-a.json", RealDisk())
    await register.create(ACTIVE)
    folder.tear_down(True)
    with pytest.raises(RegisterGoneError, match="is being stopped"):
        await register.read()
    folder.tear_down(False)
    folder.tear_down(False)
    assert await register.read() is not None


def test_the_wires_say_what_they_have_cut(folder: Folder) -> None:
    assert folder.are_cut() is None
    cuts = Cuts(frozenset({"broker-a-1"}), frozenset({Way("broker-a-0", OUTSIDE)}))
    folder.say_carried_out(cuts)
    assert folder.are_cut() == cuts


def test_a_folder_without_a_cluster_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gantry local up --dir"):
        Folder(tmp_path).load()


def test_a_damaged_file_says_which(folder: Folder) -> None:
    (folder.path / "local.json").write_text('{"layout": {"profile": "no such"}}')
    with pytest.raises(StoreError, match=r"local\.json"):
        folder.load()
