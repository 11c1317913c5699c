"""A pass over a cluster against an API server that is a dictionary: what is written, and what is not."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from gantry.failover.decide import Blocked, Seal, Wait
from gantry.replication.haapi import CLONE, CONFIG, HANDOVER
from gantry_operator.api.brokercluster import FINALIZER
from gantry_operator.api.wishes import FORCE, PAUSE, RECLONE, ROLL
from gantry_operator.desired.brokers import as_run
from gantry_operator.kube import KubeError, lease_path
from gantry_operator.reconcile import LATER_S, SOON_S
from gantry_operator.snapshot import Answer, GroupSeen
from testkit.kube.operatorbench import CLAIMS, KEY, PATH, PODS, SET, Bench


def test_a_new_cluster_gets_everything_and_is_not_ready() -> None:
    bench = Bench()
    assert bench.once() == SOON_S
    writes = bench.server.writes
    assert writes.count("apply StatefulSet") == 2 and writes[0] == "create Secret"
    assert len(bench.loops.kept[KEY]) == 64
    assert bench.conditions()["Ready"] == ("False", "NoMaster")
    assert bench.conditions()["FailoverPossible"] == ("False", "NobodyInSync")


def test_a_cluster_that_works_is_told_and_labelled() -> None:
    bench = Bench().works(master=1)
    assert {kind for kind, (status, _) in bench.conditions().items() if status == "True"} == {
        "Ready", "InSync", "FailoverPossible", "ConfigApplied", "ImageUpToDate", "VolumesMatch",
    }  # fmt: skip
    status = bench.server.documents[PATH]["status"]
    assert status["summary"] == {
        "masters": "1/1", "inSync": "3/3", "ready": "3/3", "updated": "3/3", "nameservers": "2/2",
    }  # fmt: skip
    assert (status["mode"], status["flush"]) == ("SYNC_MASTER", "SYNC_FLUSH")
    labels = [bench.server.documents[f"{PODS}/orders-b0-{each}"]["metadata"]["labels"] for each in range(3)]
    assert [each["gantrymq.io/role"] for each in labels] == ["slave", "master", "slave"]
    assert ("Normal", "Ready") in bench.server.events() and ("Normal", "MasterBegan") in bench.server.events()


def test_an_unchanged_cluster_costs_no_write() -> None:
    bench = Bench().works()
    assert bench.once() == LATER_S and bench.server.writes == []


def test_another_master_moves_two_labels_and_the_status() -> None:
    bench = Bench().works()
    bench.server.runs(master=2, in_sync="1.0,2.0")
    bench.once()
    assert sorted(bench.server.deeds) == ["merge orders-b0-0", "merge orders-b0-2", "merge status"]
    (group,) = bench.server.documents[PATH]["status"]["groups"]
    assert (group["master"], group["syncSet"]) == ({"ordinal": 2, "pod": "orders-b0-2"}, [1, 2])
    assert ("Normal", "MasterChanged") in bench.server.events()
    assert bench.said("InSync") == "not in sync: orders-b0-0"


def test_what_the_failover_loop_does_is_an_event_and_what_it_waits_for_a_condition() -> None:
    bench = Bench().works()
    bench.loops.heard, bench.loops.decision = [("b0", Seal("gone"))], Blocked("none of 1.0 has promised")
    bench.once()
    assert ("Warning", "FailoverBegan") in bench.server.events()
    assert bench.conditions()["FailoverPossible"] == ("False", "Blocked")
    assert "none of 1.0 has promised" in bench.said("FailoverPossible")


def test_another_template_replaces_one_slave_and_waits_for_it() -> None:
    bench = Bench().works()
    bench.server.changed(config={"pull.count_max": "64"})
    assert bench.once() == SOON_S
    assert sorted(bench.server.deeds) == [
        "apply ConfigMap", *["apply StatefulSet"] * 2, "delete orders-b0-1", "merge status",
    ]  # fmt: skip
    assert bench.conditions()["Reconciling"] == ("True", "RollingUpdate")
    assert bench.conditions()["Ready"] == ("False", "Changing")
    bench.server.writes.clear()
    assert bench.once() == SOON_S
    assert bench.server.deeds == ["merge status"]


def test_keys_that_wait_for_a_restart_are_named() -> None:
    bench = Bench().works()
    bench.doors.differs = {"pull.count_max": 7}
    bench.once()
    assert bench.conditions()["ConfigApplied"] == ("False", "WaitsForRestart")
    assert bench.said("ConfigApplied") == "pull.count_max: after a restart of orders-b0-0, orders-b0-1, orders-b0-2"


def test_a_key_that_a_broker_takes_while_it_runs_is_told_to_it_and_replaces_nobody() -> None:
    bench = Bench().works()
    bench.doors.differs = {"permission": 6}
    bench.server.changed(config={"permission": "4"})
    bench.once()
    assert bench.doors.orders == [(0, CONFIG, {"keys": {"permission": "4"}})]
    assert not [each for each in bench.server.deeds if each.startswith("delete")]


def test_a_group_grows_at_once() -> None:
    bench = Bench().works()
    bench.server.changed(replicasPerGroup=4)
    bench.once()
    assert sorted(set(bench.server.deeds)) == ["apply Service", "apply StatefulSet", "merge status"]
    assert bench.server.documents[SET]["spec"]["replicas"] == 4


def test_a_group_loses_its_last_member_and_a_master_hands_over_before_it_goes() -> None:
    bench = Bench(replicasPerGroup=4).works(master=3, in_sync="0.0,1.0,2.0,3.0", members=4)
    bench.server.changed(replicasPerGroup=3)
    bench.once()
    assert bench.doors.orders == [(3, HANDOVER, {"target": 0, "within_s": 10.0})]
    bench.server.runs(master=0, in_sync="0.0,1.0,2.0,3.0", members=4)
    bench.server.writes.clear()
    bench.once()
    assert bench.server.documents[SET]["spec"]["replicas"] == 3 and not bench.loops.forgotten


def test_the_disk_of_a_member_that_went_is_forgotten_and_its_volume_deleted_only_where_that_was_asked_for() -> None:
    for policy, gone in (("Retain", False), ("Delete", True)):
        bench = Bench()
        bench.server.documents[PATH]["spec"]["deletionPolicy"] = policy
        bench.works()
        labels = {"gantrymq.io/cluster": "orders"}
        bench.server.documents[f"{CLAIMS}/store-orders-b0-3"] = {
            "metadata": {"name": "store-orders-b0-3", "uid": "c3", "labels": labels}
        }
        bench.once()
        assert (3 in bench.loops.forgotten) is gone
        assert (f"{CLAIMS}/store-orders-b0-3" in bench.server.documents) is not gone


def test_a_cluster_whose_volumes_go_with_it_goes_step_by_step_and_any_other_needs_no_operator() -> None:
    bench = Bench()
    bench.server.documents[PATH]["spec"]["deletionPolicy"] = "Delete"
    bench.works()
    about = bench.server.documents[PATH]["metadata"]
    assert about["finalizers"] == [FINALIZER]
    labels = {"gantrymq.io/cluster": "orders"}
    bench.server.documents[f"{CLAIMS}/store-orders-b0-0"] = {
        "metadata": {"name": "store-orders-b0-0", "uid": "c0", "labels": labels}
    }
    about["deletionTimestamp"] = "2026-11-22T01:00:00Z"
    assert bench.once() == SOON_S
    assert sorted(bench.server.deeds) == ["delete orders-b0", "delete orders-ns", "merge status"]
    assert KEY in bench.loops.kept, "pods that are there still fail over"
    for path in [each for each in bench.server.documents if each.startswith(PODS)]:
        del bench.server.documents[path]
    bench.once()
    assert not bench.loops.kept, "no loop makes the register again"
    assert bench.server.deeds[3:] == ["delete orders-b0", "delete store-orders-b0-0", "merge status"]
    assert bench.once() == LATER_S and about["finalizers"] == []


def test_a_finalizer_goes_with_the_policy() -> None:
    bench = Bench()
    bench.server.documents[PATH]["spec"]["deletionPolicy"] = "Delete"
    bench.works()
    bench.server.documents[PATH]["spec"]["deletionPolicy"] = "Retain"
    bench.once()
    assert bench.server.documents[PATH]["metadata"]["finalizers"] == []


def test_a_pause_changes_nothing_but_says_so_and_failover_goes_on() -> None:
    bench = Bench().works()
    bench.server.changed(config={"pull.count_max": "64"})
    bench.server.annotate(PATH, **{PAUSE: "true"})
    bench.server.runs(master=1)
    bench.once()
    assert sorted(bench.server.deeds) == ["merge orders-b0-0", "merge orders-b0-1", "merge status"]
    assert bench.conditions()["Paused"] == ("True", "Requested") and KEY in bench.loops.kept
    bench.server.annotate(PATH, **{PAUSE: "false"})
    bench.once()
    assert "apply StatefulSet" in bench.server.deeds and bench.conditions()["Paused"] == ("False", "NotRequested")
    assert {("Normal", "Paused"), ("Normal", "Resumed")} <= set(bench.server.events())


@pytest.mark.parametrize("path", [PATH, SET])
def test_a_manual_rolling_update_happens_once_for_each_value(path: str) -> None:
    bench = Bench().works()
    bench.server.annotate(path, **{ROLL: "monday"})
    bench.once()
    assert "delete orders-b0-1" in bench.server.deeds
    if path == PATH:
        (request,) = bench.server.documents[PATH]["status"]["requests"]
        assert request == {"name": ROLL, "value": "monday", "outcome": "under way"}
    for pod in [each for each in bench.server.documents if each.startswith(f"{PODS}/orders-b0")]:
        del bench.server.documents[pod]
    bench.server.runs(master=0)
    bench.server.writes.clear()
    bench.once()
    assert not [each for each in bench.server.deeds if each.startswith("delete")]
    if path == PATH:
        assert bench.server.documents[PATH]["status"]["requests"][0]["outcome"] == "done"


def test_one_pod_can_be_replaced_by_hand() -> None:
    bench = Bench().works()
    bench.server.annotate(f"{PODS}/orders-b0-2", **{ROLL: "now"})
    bench.once()
    assert [each for each in bench.server.deeds if each.startswith("delete")] == ["delete orders-b0-2"]


@pytest.mark.parametrize(
    ("value", "outcome"),
    [
        ("b0/1@3", "under way"),
        ("b0/0@3", "done: orders-b0-0 leads in epoch 3"),
        ("b0/1@2", "outdated: it was for epoch 2"),
        ("b0/7@3", "refused: there is no member b0/7"),
        ("somebody", "refused: it cannot be read"),
    ],
)
def test_a_forced_failover_leaves_a_trace(value: str, outcome: str) -> None:
    bench = Bench().works()
    bench.server.annotate(PATH, **{FORCE: value})
    bench.once()
    (request,) = bench.server.documents[PATH]["status"]["requests"]
    assert request["outcome"].startswith(outcome)


def test_why_a_forced_failover_is_not_done_is_told_and_what_was_done_stays_told() -> None:
    bench = Bench().works()
    bench.server.annotate(PATH, **{FORCE: "b0/1@3"})
    bench.loops.decision = Wait("the master is well; the failover that was asked for: member 1 does not answer")
    bench.once()
    assert bench.server.documents[PATH]["status"]["requests"][0]["outcome"] == "refused: member 1 does not answer"
    assert bench.conditions()["FailoverPossible"][0] == "True"
    bench.loops.decision = Wait("the master is well")
    lease = bench.server.documents[lease_path("messaging", "orders-b0")]
    for epoch, master in ((4, 1), (5, 0)):
        lease["spec"] |= {"leaseTransitions": epoch, "holderIdentity": f"{master}.0/p"}
        bench.once()
        outcome = bench.server.documents[PATH]["status"]["requests"][0]["outcome"]
        assert outcome == "done: orders-b0-1 leads in epoch 4"


def test_a_member_is_copied_again_when_its_pod_is_named_and_nobody_counts_on_it() -> None:
    for in_sync, uid, refused in (
        ("0.0,1.0", "u-orders-b0-2", False), ("0.0,1.0", "another", True), ("0.0,1.0,2.0", "u-orders-b0-2", True),
    ):  # fmt: skip
        bench = Bench().works(in_sync=in_sync)
        bench.server.annotate(f"{PODS}/orders-b0-2", **{RECLONE: uid})
        bench.once()
        assert bench.doors.orders == ([] if refused else [(2, CLONE, {})])
        assert RECLONE not in bench.server.documents[f"{PODS}/orders-b0-2"]["metadata"]["annotations"]
        assert ("Warning", "RecloneRefused") in bench.server.events() or not refused


def test_what_somebody_deleted_comes_back_and_a_secret_as_it_was() -> None:
    bench = Bench().works()
    key = bench.loops.kept[KEY]
    del bench.server.documents["/api/v1/namespaces/messaging/services/orders-b0-1"]
    del bench.server.documents["/api/v1/namespaces/messaging/secrets/orders-ha"]
    bench.once()
    assert bench.server.deeds == ["create Secret", "apply Service"] and bench.loops.kept[KEY] == key


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    bench = Bench()
    bench.once()
    before = bench.server.documents[PATH]["status"]["conditions"]
    bench.server.runs(master=0)
    bench.clock.advance(3_600_000)
    bench.once()
    after = {each["type"]: each["lastTransitionTime"] for each in bench.server.documents[PATH]["status"]["conditions"]}
    moved = [each["type"] for each in before if after[each["type"]] != each["lastTransitionTime"]]
    assert sorted(moved) == ["ConfigApplied", "FailoverPossible", "InSync", "Ready", "Reconciling"]


def test_what_nobody_is_woken_for_is_told_every_two_seconds_at_most() -> None:
    bench = Bench().works()
    for epoch in (4, 5):
        lease = bench.server.documents[lease_path("messaging", "orders-b0")]
        lease["spec"]["leaseTransitions"] = epoch
        asyncio.run(bench.operator.once(KEY))
    assert bench.server.deeds.count("merge status") == 0
    bench.once()
    assert bench.server.documents[PATH]["status"]["groups"][0]["epoch"] == 5


def test_a_key_that_no_broker_has_changes_nothing_and_is_named() -> None:
    bench = Bench().works()
    bench.server.changed(config={"pull.count_mx": "64"})
    bench.once()
    assert bench.server.deeds == ["merge status"] and bench.conditions()["Stalled"] == ("True", "Refused")
    assert "spec.brokers.config: pull.count_mx is not known; the nearest known key is pull.count_max" in bench.said(
        "Stalled"
    )
    bench.server.changed()
    assert bench.once() == LATER_S and bench.conditions()["Stalled"] == ("False", "NoError")


def test_a_secret_for_pulling_that_is_missing_is_named() -> None:
    bench = Bench()
    bench.server.documents[PATH]["spec"]["imagePullSecrets"] = ["regcred"]
    bench.works()
    assert bench.conditions()["Stalled"] == ("True", "SecretMissing")
    assert "spec.imagePullSecrets: there is no Secret regcred" in bench.said("Stalled")


def test_a_member_that_runs_and_does_not_answer_is_named_with_its_node() -> None:
    bench = Bench().works()
    lost = bench.server.documents[f"{PODS}/orders-b0-1"]
    unready = {"type": "Ready", "status": "False", "lastTransitionTime": "1999-01-01T00:00:00Z"}
    lost["status"] = {"containerStatuses": [{"state": {"running": {}}}], "conditions": [unready]}
    lost["spec"] = {"nodeName": "n7"}
    going = bench.server.documents[f"{PODS}/orders-b0-2"]
    going["status"]["containerStatuses"] = [{"state": {"running": {}}}]
    going["metadata"]["deletionTimestamp"] = "2026-11-22T01:00:00Z"

    async def look(seen: GroupSeen, key: bytes) -> Mapping[int, Answer]:
        return {0: Answer(as_run(seen.group))}

    bench.doors.look = look  # type: ignore[method-assign]
    bench.once()
    assert bench.conditions()["MemberUnreachable"] == ("True", "NoAnswer")
    assert "kubectl taint nodes n7 node.kubernetes.io/out-of-service=" in bench.said("MemberUnreachable")
    assert "orders-b0-2" not in bench.said("MemberUnreachable"), "who stops says nothing any more"


def test_a_master_that_serves_and_does_not_renew_is_told() -> None:
    bench = Bench().works()
    lease = bench.server.documents[lease_path("messaging", "orders-b0")]
    lease["spec"]["renewTime"] = "1999-01-01T00:00:00.000000Z"
    bench.clock.advance(10**12)
    bench.once()
    assert bench.conditions()["LeaseRenewalFailing"] == ("True", "NotRenewed")


def test_a_member_that_its_master_turns_away_is_told_with_what_helps() -> None:
    bench = Bench().works(in_sync="0.0,1.0")

    async def look(seen: GroupSeen, key: bytes) -> Mapping[int, Answer]:
        said = {0: "", 1: "", 2: "the master refuses: the two logs have no epoch in common"}
        return {ordinal: Answer(as_run(seen.group), refused) for ordinal, refused in said.items()}

    bench.doors.look = look  # type: ignore[method-assign]
    bench.once()
    assert bench.conditions()["Diverged"] == ("True", "RefusedByMaster")
    assert "kubectl annotate pod orders-b0-2 gantrymq.io/reclone=u-orders-b0-2" in bench.said("Diverged")


def test_a_server_that_is_busy_is_asked_again() -> None:
    bench = Bench()
    bench.server.refuses["Service"] = 503
    with pytest.raises(KubeError):
        bench.once()


def test_a_cluster_that_is_gone_is_watched_no_longer() -> None:
    bench = Bench()
    bench.once()
    del bench.server.documents[PATH]
    assert bench.once() is None and not bench.loops.kept


def test_a_cluster_that_is_being_deleted_gets_nothing_new() -> None:
    bench = Bench()
    bench.server.documents[PATH]["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
    assert bench.once() == LATER_S and bench.server.writes == ["merge status"] and not bench.loops.kept
