"""Groups of real processes whose masters are killed, stopped and cut off: what was acknowledged stays.

Who leads is asserted by the register: a process that comes back takes the next epoch itself (same member, another
process); one that is kept away gives way to another member, by a seal and a promotion.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from gantry.local import namespaces, processes
from gantry.local.cuts import OUTSIDE
from gantry.local.layout import Who
from gantry.replication.record import RegisterRecord
from testkit.localplay import Cluster, Producing
from testkit.pairplay import until
from testkit.patience import HANG_S

TOPIC, QUEUES = "orders", 8


def nothing_lost(cluster: Cluster, *ledgers: Producing) -> int:
    """Whatever a producer was told SEND_OK for stands where it was told; how many that are."""
    acknowledged = {body: place for ledger in ledgers for body, place in ledger.places().items()}
    stored = cluster.stored(TOPIC, QUEUES)
    lost = sorted(body for body, place in acknowledged.items() if stored.get(place) != body)
    assert not lost, f"{len(lost)} of {len(acknowledged)} lost: {lost[:10]}\n{cluster.story()}"
    return len(acknowledged)


def come_back(cluster: Cluster, producing: Producing) -> RegisterRecord:
    """The master's process dies and is started again: it leads on, in the next epoch.

    The coordinator stands still meanwhile: on a busy machine a start may take longer than its patience.
    """
    before = cluster.record()
    assert before.holder is not None
    cluster.do("pause", "coordinator")
    cluster.do("kill", "broker-a", "--master")
    after = cluster.until_served(before.epoch)
    cluster.do("resume", "coordinator")
    assert after.holder is not None
    assert after.holder.member == before.holder.member and after.holder.process != before.holder.process
    assert after.epoch == before.epoch + 1
    producing.until_more()
    return after


def lose(cluster: Cluster, producing: Producing, how: str, *flags: str) -> Who:
    """The master goes and stays away: another member leads; the one that is away."""
    before = cluster.record()
    assert before.holder is not None
    away = Who(0, before.holder.member.ordinal)
    cluster.do(how, "broker-a", "--master", *flags)
    after = cluster.until_served(before.epoch)
    assert after.holder is not None and after.holder.member.ordinal != away.ordinal
    assert after.epoch > before.epoch and after.holder.member in before.in_sync
    producing.until_more()
    return away


def test_a_killed_master_leads_again_or_gives_way_and_nothing_is_lost(tmp_path: Path) -> None:
    with (
        Cluster(tmp_path / "cluster", "--failover-timers", "fast") as cluster,
        Producing(cluster.name_server, TOPIC, tmp_path / "ledger") as producing,
    ):
        come_back(cluster, producing)
        cluster.until_all_in_sync()
        away = lose(cluster, producing, "kill", "--keep-down")
        cluster.do("start", away.name)
        cluster.until_all_in_sync()
        nothing_lost(cluster, producing)


def members(cluster: Cluster) -> tuple[str, list[str]]:
    """Who leads, and the others."""
    holder = cluster.record().holder
    assert holder is not None
    names = [who.name for who in cluster.folder.load().layout.members()]
    return names.pop(holder.member.ordinal), names


def test_a_master_that_hears_nobody_from_outside_gives_way_although_its_slaves_follow_it(tmp_path: Path) -> None:
    with (
        Cluster(tmp_path / "cluster", "--failover-timers", "fast") as cluster,
        Producing(cluster.name_server, TOPIC, tmp_path / "ledger") as producing,
    ):
        cluster.until_all_in_sync()
        master, _ = members(cluster)
        lose_by(cluster, producing, "--from", OUTSIDE, "--to", master)
        cluster.do("heal", "--from", OUTSIDE, "--to", master)
        cluster.until_all_in_sync()
        nothing_lost(cluster, producing)


def lose_by(cluster: Cluster, producing: Producing, *ways: str) -> None:
    """These ways are cut: another member leads."""
    before = cluster.record()
    cluster.do("partition", *ways)
    after = cluster.until_served(before.epoch)
    assert before.holder is not None and after.holder is not None
    assert after.epoch > before.epoch and after.holder.member in before.in_sync - {before.holder.member}
    producing.until_more()


def stall_by(cluster: Cluster, producing: Producing, *cuts: list[str]) -> None:
    """No member that leads has a slave that could acknowledge: messages are refused until the ways are back."""
    cluster.until_all_in_sync()
    producing.until_more()
    said = len(producing.said())
    for ways in cuts:
        cluster.do("partition", *ways)
    cluster.until(lambda: "in-sync replicas not enough" in producing.said()[said:], "the master refuses writes")
    cluster.do("heal")
    cluster.until_all_in_sync()
    producing.until_more()


@pytest.mark.slow
@pytest.mark.parametrize("links", ["namespaces", "proxy"])
def test_ways_that_are_cut_in_one_direction_in_halves_and_in_a_ring_lose_nothing(tmp_path: Path, links: str) -> None:
    if links == "namespaces" and not namespaces.can_be():
        pytest.skip("networks of their own need root, and the program ip of iproute2")
    with (
        Cluster(tmp_path / "cluster", "--failover-timers", "fast", "--links", links) as cluster,
        Producing(cluster.name_server, TOPIC, tmp_path / "ledger") as producing,
    ):
        cluster.until_all_in_sync()
        master, slaves = members(cluster)
        lose_by(cluster, producing, "--from", master, "--to", *slaves)
        cluster.do("heal")
        cluster.until_all_in_sync()
        master, slaves = members(cluster)
        lose_by(cluster, producing, "--from", *slaves, "--to", master)
        cluster.do("heal")
        cluster.until_all_in_sync()
        master, slaves = members(cluster)
        ring, before = [master, *slaves], cluster.record()
        stall_by(cluster, producing, ["--from", master, OUTSIDE, "--to", *slaves, "--both-ways"])
        after = cluster.record()
        assert (after.holder, after.epoch) == (before.holder, before.epoch), "nobody else can be asked"
        stall_by(cluster, producing, *(["--from", ring[at - 1], "--to", ring[at]] for at in range(3)))
        for both in ([], ["--both-ways"]):
            master, _ = members(cluster)
            lose_by(cluster, producing, "--from", master, "--to", OUTSIDE, *both)
            cluster.do("heal")
            cluster.until_all_in_sync()
        nothing_lost(cluster, producing)


@pytest.mark.slow
@pytest.mark.parametrize("links", ["namespaces", "proxy"])
def test_the_half_with_the_coordinator_has_the_next_master_and_writes_wait_until_the_halves_meet(
    tmp_path: Path, links: str
) -> None:
    if links == "namespaces" and not namespaces.can_be():
        pytest.skip("networks of their own need root, and the program ip of iproute2")
    with (
        Cluster(tmp_path / "cluster", "--failover-timers", "fast", "--links", links) as cluster,
        Producing(cluster.name_server, TOPIC, tmp_path / "ledger") as producing,
    ):
        cluster.until_all_in_sync()
        before = cluster.record()
        master, (slave, heir) = members(cluster)
        cluster.do("partition", "--from", master, slave, "--to", heir, OUTSIDE, "--both-ways")
        cluster.until(lambda: (cluster.record().holder or before.holder) != before.holder, "another member leads")
        after = cluster.record()
        assert after.holder is not None and after.holder.member.ordinal == int(heir[-1])
        assert after.in_sync == {after.holder.member}, "it does not hear the others"
        told = producing.places()
        cluster.do("heal")
        cluster.until_all_in_sync()
        producing.until_more()
        assert told.keys() <= producing.places().keys()
        nothing_lost(cluster, producing)


@pytest.mark.slow
@pytest.mark.parametrize("links", ["namespaces", "proxy"])
def test_a_master_that_stands_still_or_is_cut_off_gives_way_and_follows_afterwards(tmp_path: Path, links: str) -> None:
    if links == "namespaces" and not namespaces.can_be():
        pytest.skip("networks of their own need root, and the program ip of iproute2")
    with (
        Cluster(tmp_path / "cluster", "--failover-timers", "fast", "--links", links) as cluster,
        Producing(cluster.name_server, TOPIC, tmp_path / "ledger") as producing,
    ):
        away = lose(cluster, producing, "pause")
        cluster.do("resume", away.name)
        cluster.until_all_in_sync()
        away = lose(cluster, producing, "partition")
        cluster.do("heal")
        cluster.until_all_in_sync()
        nothing_lost(cluster, producing)


@pytest.mark.slow
def test_a_cluster_that_ends_hands_nothing_over_and_keeps_its_sets(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster") as cluster:
        cluster.until_all_in_sync()
        before = cluster.record()
        cluster.do("down")
        after = cluster.record()
        assert (after.epoch, after.holder, after.in_sync) == (before.epoch, before.holder, before.in_sync)


@pytest.mark.slow
def test_what_a_killed_supervisor_left_is_ended_and_started_again(tmp_path: Path) -> None:
    path = tmp_path / "cluster"
    with Cluster(path, "--failover-timers", "fast") as cluster:
        with Producing(cluster.name_server, TOPIC, tmp_path / "ledger") as producing:
            producing.until_more()
        uid = cluster.folder.load().layout.uid
        cluster.supervisor.kill()
        cluster.supervisor.wait(HANG_S)
        assert {"broker-a-0", "broker-a-1", "broker-a-2", "coordinator", "nameserver"} <= processes.find(uid).keys()
        cluster.do("pause", "broker-a-1")
        cluster.do("down")
        assert processes.find(uid) == {}
    with Cluster(path) as cluster:
        nothing_lost(cluster, producing)


@pytest.mark.slow
def test_a_member_that_dies_by_itself_is_started_again_unless_it_is_kept_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Cluster(tmp_path / "cluster") as cluster:
        uid = cluster.folder.load().layout.uid
        first = processes.find(uid)["broker-a-2"]
        assert processes.send(uid, "broker-a-2", signal.SIGKILL)
        until(lambda: processes.find(uid).get("broker-a-2", first) != first, "it is started again")
        cluster.do("kill", "broker-a-2", "--keep-down")
        until(lambda: "broker-a-2" not in processes.find(uid), "it is down")
        capsys.readouterr()
        cluster.do("status", "--output", "json")
        shown = json.loads(capsys.readouterr().out)
        assert [each["process"] for each in shown["members"]] == ["running", "running", "kept down"]
        assert shown["nameserver"] == cluster.name_server and shown["groups"][0]["epoch"] == cluster.record().epoch
        cluster.do("start", "broker-a-2")
        until(lambda: "broker-a-2" in processes.find(uid), "it is started")
