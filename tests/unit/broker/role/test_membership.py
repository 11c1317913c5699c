"""Becoming a member of a group, and beginning a mastership."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gantry.broker.machine import Machine
from gantry.broker.member_lifecycle import MemberLifecycle
from gantry.broker.role.membership import KeyFile, Membership, cluster_uid, join, read_keys, take_epoch
from gantry.broker.settings import loading
from gantry.broker.settings.config import BrokerConfig
from gantry.errors import ConfigError
from gantry.replication import member_files
from gantry.replication.epochs import table_of
from gantry.replication.haproof import Keys
from gantry.replication.member_files import StoreIdentity
from gantry.replication.term_promise import TermPromise
from gantry.store.settings import StoreSettings
from testkit.simdisk import SimDisk

ROOT = "/store"


def loaded(folder: Path, **flags: object) -> BrokerConfig:
    secret = folder / "secret"
    secret.write_text("a secret for tests\n")
    found, _ = loading.load(flags={"replication.secret_file": str(secret)} | flags)
    return found


def test_a_secret_is_read_without_the_space_around_it_and_may_not_be_short(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("  sixteen bytes ok\n")
    assert read_keys(str(path)) == Keys(b"sixteen bytes ok")
    path.write_text("sixteen bytes ok\nthe one before that\n")
    assert read_keys(str(path)) == Keys(b"sixteen bytes ok", b"the one before that")
    path.write_text("sixteen bytes ok\nthe one before that\nand another one too\n")
    with pytest.raises(ConfigError, match="3 lines"):
        read_keys(str(path))
    path.write_text("short\n")
    with pytest.raises(ConfigError, match=r"has 5 bytes, expected 16 .*/dev/urandom"):
        read_keys(str(path))
    with pytest.raises(ConfigError, match="No such file"):
        read_keys(str(tmp_path / "nowhere"))


def test_another_secret_is_taken_while_the_broker_runs_and_the_former_one_stays_good(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "secret"
    path.write_text("sixteen bytes ok\n")
    keys = read_keys(str(path))
    file, old, new = KeyFile(str(path), keys), b"sixteen bytes ok", b"another one of sixteen"
    file.look()
    assert keys.good == (old,) and not caplog.text
    other = tmp_path / "other"
    other.write_bytes(new + b"\n")
    other.replace(path)
    file.look()
    assert keys.first == new and set(keys.good) == {old, new} and "has changed" in caplog.text
    for broken in ("", "short\n"):
        other.write_text(broken)
        other.replace(path)
        caplog.clear()
        file.look()
        file.look()
        assert keys.good == (new, old), "a file that cannot be used changes nothing"
        assert caplog.text.count("the former secret stays in use") == 1
    path.unlink()
    file.look()
    assert keys.good == (new, old)
    config = loaded(tmp_path)
    path.write_bytes(new + b"\n")
    member = join(config, SimDisk(), ROOT, random.Random(1), kept=keys)
    assert member.keys is keys and keys.good == (new, old), "a promotion forgets the key that others still use"
    path.unlink()
    other.write_bytes(old + b"\n" + new + b"\n")
    other.replace(path)
    file.look()
    assert keys.first == old and set(keys.good) == {old, new}, "also back"


async def test_a_broker_without_a_secret_is_no_member_and_its_folder_is_left_alone() -> None:
    disk = SimDisk()
    member_lifecycle = MemberLifecycle(BrokerConfig(), Machine(disk=disk))
    await member_lifecycle.prepare(StoreSettings(ROOT))
    assert not member_lifecycle.has_register and not disk.files()


def test_a_master_names_the_cluster_and_a_slave_waits_to_hear_it(tmp_path: Path) -> None:
    disk, chance = SimDisk(), random.Random(1)
    slave = join(loaded(tmp_path, role="SLAVE", id="1"), disk, ROOT, chance)
    assert slave is not None and not slave.identity.cluster_uid and slave.identity.store_uid
    again = join(loaded(tmp_path, role="SLAVE", id="1"), disk.crash(), ROOT, chance)
    assert again is not None and again.identity == slave.identity
    master = join(loaded(tmp_path, role="SYNC_MASTER"), disk, ROOT, chance)
    assert master is not None and master.identity.cluster_uid and master.identity.store_uid == slave.identity.store_uid
    kept = join(loaded(tmp_path, role="SYNC_MASTER"), disk, ROOT, chance)
    assert kept is not None and kept.identity == master.identity


def test_a_broker_in_no_group_is_a_cluster_and_stays_that_one_as_a_master(tmp_path: Path) -> None:
    disk = SimDisk()
    alone = cluster_uid(None, Machine(disk=disk), ROOT)()
    assert alone and cluster_uid(None, Machine(disk=disk.crash()), ROOT)() == alone
    master = join(loaded(tmp_path, role="SYNC_MASTER"), disk, ROOT, random.Random(1))
    assert cluster_uid(master, Machine(disk=disk), ROOT)() == alone


def member(*epochs: tuple[int, int]) -> Membership:
    return Membership(b"", StoreIdentity("cluster", "store"), table_of(epochs))


def test_the_first_mastership_owns_the_whole_log() -> None:
    disk, one = SimDisk(), member()
    assert take_epoch(one, disk, ROOT, 100, 5000) == 1
    assert member_files.load_epochs(disk.crash(), ROOT) == one.epochs == table_of([(1, 100)])


def test_each_start_begins_an_epoch_above_all_that_were() -> None:
    disk, one = SimDisk(), member((1, 0), (2, 700))
    assert take_epoch(one, disk, ROOT, 0, 900) == 3 and one.epochs == table_of([(1, 0), (2, 700), (3, 900)])
    assert take_epoch(one, disk, ROOT, 0, 900) == 4 and one.epochs == table_of([(1, 0), (2, 700), (4, 900)])


def test_what_the_table_says_about_a_longer_log_is_dropped_but_no_number_is_given_twice() -> None:
    disk, one = SimDisk(), member((1, 0), (2, 700), (9, 2000))
    assert take_epoch(one, disk, ROOT, 0, 900) == 10
    assert one.epochs == table_of([(1, 0), (2, 700), (10, 900)])


def test_a_mastership_begins_above_what_was_promised_or_is_just_being_promised() -> None:
    one = member((1, 0), (2, 700))
    one.term_promise = TermPromise(0, promise=8)
    assert take_epoch(one, SimDisk(), ROOT, 0, 900) == 9
    one = member()
    one.fencing = 5
    assert take_epoch(one, SimDisk(), ROOT, 0, 900) == 6 and one.epochs == table_of([(6, 0)])
