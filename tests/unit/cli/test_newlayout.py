from __future__ import annotations

import argparse
import socket
from pathlib import Path

import pytest

from gantry.cli.newlayout import layout_for
from gantry.errors import ConfigError
from gantry.local.folder import Folder
from gantry.local.layout import Links


def flags(**given: object) -> argparse.Namespace:
    names = ("groups", "replicas", "profile", "failover_timers", "set")
    return argparse.Namespace(**{name: given.get(name) for name in names}, links=given.get("links", "direct"))


def test_a_new_folder_gets_what_was_asked_for_and_keeps_it(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    made = layout_for(folder, flags(groups=2, profile="fast", set=["pull.count_max = 64"]))
    assert (made.groups, made.replicas, made.profile, made.timers) == (2, 3, "fast", "default")
    assert made.links is Links.DIRECT and made.settings == {"pull.count_max": "64"}
    assert layout_for(folder, flags(links=None)) == made == folder.load().layout


def test_another_cluster_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    layout_for(folder, flags())
    with pytest.raises(ConfigError, match="--replicas 3, not 5"):
        layout_for(folder, flags(replicas=5))


def test_settings_may_change_from_start_to_start(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    layout_for(folder, flags(set=["pull.count_max=64"]))
    assert layout_for(folder, flags(set=["pull.count_max=65"])).settings == {"pull.count_max": "65"}
    assert layout_for(folder, flags()).settings == {"pull.count_max": "65"}
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        layout_for(folder, flags(set=["nothing"]))


def test_taken_ports_are_gone_around(tmp_path: Path) -> None:
    first = layout_for(Folder(tmp_path / "one"), flags())
    with socket.socket() as taken:
        taken.bind((first.host, first.ports.names))
        again = Folder(tmp_path / "one")
        (again.path / "local.json").unlink()
        assert set(layout_for(again, flags()).listeners()).isdisjoint(first.listeners())


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("pull.cuont_max=1", "--set pull.cuont_max: pull.cuont_max is not known; the nearest .* pull.count_max"),
        ("pull.count_max=0", "--set pull.count_max: pull.count_max '0': expected a whole number of messages from 1"),
        ("store.segment_bytes=1MiB", r"store.segment_bytes 1 MiB: .* \[store.segment_bytes from --set store.segment"),
        ("network.port=1", "gantry local sets names, role, addresses and folders itself"),
    ],
)
def test_a_key_that_no_member_could_start_with_makes_no_folder(given: str, text: str, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "new")
    with pytest.raises(ConfigError, match=text):
        layout_for(folder, flags(set=[given]))
    assert not folder.path.exists()
    layout_for(folder, flags())
    with pytest.raises(ConfigError, match=text):
        layout_for(folder, flags(set=[given]))
