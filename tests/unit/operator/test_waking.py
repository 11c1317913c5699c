"""Who is looked at when something is heard: those whom it is about, once, and nobody for a status alone."""

from __future__ import annotations

from collections.abc import Callable

from gantry_operator.api.brokercluster import Key
from gantry_operator.api.declared import Declared, Kind
from gantry_operator.declared.claims import Claims
from gantry_operator.declared.territory import Territories
from gantry_operator.declared.waking import DECIDED_S, Waking
from testkit.kube.declared import CLUSTER, NAMESPACE, Document, Server, document, key_of
from testkit.simclock import SimClock

HOME = Key(NAMESPACE, CLUSTER)
TEA, SHOP = key_of(Kind.TOPIC, "tea"), key_of(Kind.CONSUMER_GROUP, "shop")


class Ear:
    """What was woken, and after how long."""

    def __init__(self) -> None:
        self.woken: list[tuple[Declared, float]] = []
        server, clock = Server(), SimClock()
        self.waking = Waking(Territories(server, clock), Claims(server, clock), lambda *each: self.woken.append(each))

    def hears(self, act: Callable[[Waking], None]) -> list[tuple[Declared, float]]:
        self.woken.clear()
        act(self.waking)
        return list(self.woken)

    def of_topic(self, made: Document, is_deleted: bool = False) -> list[tuple[Declared, float]]:
        return self.hears(lambda waking: waking.heard(Kind.TOPIC, made, is_deleted))


def test_an_object_is_looked_at_when_what_is_asked_for_changes_and_not_for_its_status() -> None:
    ear, made = Ear(), document(Kind.TOPIC, "tea")
    assert ear.of_topic(made) == [(TEA, 0.0)]
    made["status"] = {"topicName": "tea"}
    made["metadata"]["resourceVersion"] = "7"
    assert ear.of_topic(made) == []
    made["metadata"]["generation"] = 2
    assert ear.of_topic(made) == [(TEA, 0.0)]
    made["metadata"]["annotations"] = {"gantrymq.io/pause-reconciliation": "true"}
    assert ear.of_topic(made) == [(TEA, 0.0)]
    made["metadata"]["deletionTimestamp"] = "2026-11-21T11:00:00Z"
    assert ear.of_topic(made) == [(TEA, 0.0)]


def test_one_that_spoke_for_the_same_thing_is_looked_at_when_an_object_goes() -> None:
    ear, first = Ear(), document(Kind.TOPIC, "first", topicName="tea")
    second, other = document(Kind.TOPIC, "second", topicName="tea"), document(Kind.TOPIC, "other")
    for each in first, second, other:
        ear.of_topic(each)
    woken = [key for key, _ in ear.of_topic(first, is_deleted=True)]
    assert woken == [key_of(Kind.TOPIC, "first"), key_of(Kind.TOPIC, "second")]


def test_a_decision_about_a_cluster_wakes_what_belongs_to_it_and_nothing_else() -> None:
    ear = Ear()
    ear.of_topic(document(Kind.TOPIC, "tea"))
    ear.of_topic(document(Kind.TOPIC, "far", clusterRef={"name": "other"}))
    ear.hears(lambda waking: waking.heard(Kind.CONSUMER_GROUP, document(Kind.CONSUMER_GROUP, "shop"), False))
    assert ear.hears(lambda waking: waking.decided(HOME)) == [(TEA, DECIDED_S), (SHOP, DECIDED_S)]
    assert ear.hears(lambda waking: waking.decided(Key("elsewhere", CLUSTER))) == []


def test_a_cluster_that_comes_changes_or_goes_wakes_what_belongs_to_it() -> None:
    ear = Ear()
    ear.of_topic(document(Kind.TOPIC, "tea"))
    woken = [(TEA, DECIDED_S)]
    assert ear.hears(lambda waking: waking.heard_of_cluster(HOME, 1, False)) == woken
    assert ear.hears(lambda waking: waking.heard_of_cluster(HOME, 1, False)) == []
    assert ear.hears(lambda waking: waking.heard_of_cluster(HOME, 2, False)) == woken
    assert ear.hears(lambda waking: waking.heard_of_cluster(HOME, 2, True)) == woken
    assert ear.hears(lambda waking: waking.heard_of_cluster(HOME, 1, False)) == woken
