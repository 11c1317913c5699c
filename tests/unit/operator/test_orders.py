"""What members refuse: it is told with bounds, given again after a while, and stops nothing that may mend it."""

from __future__ import annotations

from gantry.replication.haapi import CONFIG, HANDOVER
from gantry_operator.api.brokercluster import Key
from gantry_operator.orders import FIRST_S, LATEST_S, Orders
from gantry_operator.snapshot import Order
from testkit.kube.operatorbench import PATH, PODS, Bench

BODY = "messages.body_bytes_max"
PASSES = 60  # one every three seconds; an order that is always refused was given at 0, 4, 12, 28, 60, 120 and 180 s
ORDERS_MAX = 7


def refusing(**config: str) -> Bench:
    """Members refuse a larger body, as they do while their segments are too small for it."""
    bench = Bench().works()
    bench.doors.differs = {BODY: 4 << 20}
    bench.doors.refusal = f"{BODY} is larger than a segment"
    bench.server.changed(config={BODY: "8MiB"} | config)
    return bench


def test_keys_that_members_refuse_do_not_keep_them_from_being_replaced_with_the_values_that_mend_it() -> None:
    bench = refusing(**{"store.segment_bytes": "64MiB"})
    for _ in range(6):
        bench.once()
    assert [each for each in bench.server.deeds if each.startswith("delete")] == ["delete orders-b0-1"]
    assert bench.conditions()["Reconciling"][0] == "True" and bench.conditions()["Stalled"][0] == "False"
    assert bench.conditions()["ConfigApplied"][0] == "False"


def test_a_key_that_members_refuse_and_nothing_mends_stalls_the_cluster_with_the_reason() -> None:
    bench = refusing()
    for _ in range(10):
        bench.once()
    assert bench.conditions()["Stalled"] == ("True", "ConfigRefused")
    assert bench.conditions()["Ready"] == ("False", "ConfigRefused")
    assert bench.conditions()["Reconciling"] == ("False", "ConfigRefused")
    assert f"orders-b0-0 refuses {BODY}: {BODY} is larger than a segment" in bench.said("Stalled")
    assert "spec.brokers.config" in bench.said("Stalled")
    bench.doors.differs, bench.doors.refusal = {}, ""
    bench.server.changed()
    bench.once()
    assert bench.conditions()["Stalled"] == ("False", "NoError")
    assert bench.conditions()["ConfigApplied"] == ("True", "Applied")
    assert bench.conditions()["Ready"] == ("True", "AllGroupsWritable")


def test_of_keys_that_are_refused_together_those_that_can_be_are_set_alone() -> None:
    bench = refusing(permission="4")
    bench.doors.differs["permission"] = 6
    for _ in range(12):
        bench.once()
    given = [tuple(more["keys"]) for ordinal, _, more in bench.doors.orders if ordinal == 0]
    assert given[:3] == [(BODY, "permission"), (BODY,), ("permission",)]


def test_refusals_cost_a_bounded_number_of_orders_and_of_writes() -> None:
    bench = refusing()
    for _ in range(PASSES):
        bench.once()
    orders = [ordinal for ordinal, path, _ in bench.doors.orders if path == CONFIG]
    assert max(orders.count(each) for each in range(3)) <= ORDERS_MAX
    assert len(bench.server.told) <= 3 * ORDERS_MAX + 2
    assert len([each for each in bench.server.deeds if each == "merge status"]) <= 5


def test_a_handover_that_is_refused_is_asked_for_again_later_and_said_meanwhile() -> None:
    bench = Bench(replicasPerGroup=4).works(master=3, in_sync="0.0,1.0,2.0,3.0", members=4)
    bench.doors.refusal = "the target lacks 7 records"
    bench.server.changed(replicasPerGroup=3)
    for _ in range(PASSES):
        bench.once()
    given = [path for _, path, _ in bench.doors.orders if path == HANDOVER]
    assert 2 <= len(given) <= ORDERS_MAX
    assert len(bench.server.told) <= ORDERS_MAX + 1 and ("Warning", "NotHandedOver") in bench.server.events()
    assert bench.said("Reconciling") == "b0: orders-b0-3 is to go and still leads: the target lacks 7 records"
    bench.doors.refusal = ""
    for _ in range(int(LATEST_S / 3) + 1):
        bench.once()
    assert ("Normal", "HandedOver") in bench.server.events()


def test_an_order_is_due_again_after_twice_as_long_each_time_and_forgotten_when_nobody_gives_it() -> None:
    orders, key, order, now_s = Orders(), Key("messaging", "orders"), Order("configure", 0, "a=1"), 0.0
    for pause_s in (FIRST_S, 2 * FIRST_S, 4 * FIRST_S, 8 * FIRST_S, LATEST_S, LATEST_S):
        orders.given(key, "b0", order, "no", now_s)
        assert not orders.denied(key, "b0", now_s + pause_s - 0.1)[order].is_due
        now_s += pause_s
        assert orders.denied(key, "b0", now_s)[order].is_due
    assert orders.denied(key, "b1", now_s) == {}
    assert orders.denied(key, "b0", now_s + 10 * LATEST_S) == {}
    orders.given(key, "b0", order, "no", now_s)
    orders.given(key, "b0", order, "", now_s)
    assert orders.denied(key, "b0", now_s) == {}


def test_what_a_pause_holds_back_is_named_and_the_image_is_the_one_that_runs() -> None:
    bench = Bench().works()
    assert bench.server.documents[PATH]["status"]["image"] == "image:1"
    bench.server.documents[PATH]["spec"]["image"] = "image:2"
    bench.server.annotate(PATH, **{"gantrymq.io/pause-reconciliation": "true"})
    bench.once()
    assert bench.conditions()["Reconciling"] == ("True", "Paused")
    assert bench.conditions()["Ready"] == ("False", "Changing")
    assert "StatefulSet orders-b0, StatefulSet orders-ns" in bench.said("Reconciling")
    assert bench.server.documents[PATH]["status"]["image"] == "image:1"
    assert not [each for each in bench.server.deeds if each.startswith("apply")]
    mirrored = bench.server.documents[f"{PODS}/orders-b0-2"]["spec"]["containers"][0]
    mirrored["image"] = "mirror.example/image:1"
    bench.once()
    assert bench.server.documents[PATH]["status"]["image"] == "image:1", "a webhook wrote the mirror into the pod"
    other = bench.server.documents[f"{PODS}/orders-b0-1"]
    other["spec"]["containers"][0]["image"] = "image:2"
    other["metadata"]["labels"]["controller-revision-hash"] = "of image:2"
    bench.once()
    assert bench.server.documents[PATH]["status"]["image"] == "image:1, image:2"
