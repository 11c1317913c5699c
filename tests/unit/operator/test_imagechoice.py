"""Another default image of the operator: which clusters take it, in which order, and what the others are told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

import pytest

from gantry_operator.api.brokercluster import Key, read
from gantry_operator.desired import brokers
from gantry_operator.imagechoice import Candidate, candidate, choose
from gantry_operator.kube import KubeError
from gantry_operator.settings import OnUpgrade, Settings, from_environment
from gantry_operator.turns import Turns
from testkit.kube.clusters import document
from testkit.kube.operatorbench import PATH, SET, Bench

Document = dict[str, Any]
OLD, NEW = "broker:1", "broker:2"
CLUSTERS = "/apis/gantrymq.io/v1alpha1/brokerclusters"
WELL = {"Ready": "True", "Reconciling": "False", "InSync": "True", "Stalled": "False"}


def cluster(name: str, image: str = OLD, **how: Any) -> Candidate:
    return Candidate(Key("a", name), how.pop("follows", True), image, how.pop("is_settled", True), **how)


@pytest.mark.parametrize(
    ("policy", "mine", "others", "reason"),
    [
        ("All", cluster("b"), [], ""),
        ("All", cluster("b", is_out=True), [], "Paused"),
        ("None", cluster("b"), [], "NotAutomatic"),
        ("None", cluster("b", ""), [], ""),
        ("OneByOne", cluster("b"), [], ""),
        ("OneByOne", cluster("b", NEW), [cluster("a", NEW, is_settled=False)], ""),
        ("OneByOne", cluster("b", is_out=True), [], "Paused"),
        ("OneByOne", cluster("b"), [cluster("a")], "WaitsForTurn"),
        ("OneByOne", cluster("b"), [cluster("c")], ""),
        ("OneByOne", cluster("b"), [cluster("a", is_stalled=True)], ""),
        ("OneByOne", cluster("b", is_stalled=True), [cluster("c")], "WaitsForTurn"),
        ("OneByOne", cluster("b"), [cluster("a", is_out=True)], ""),
        ("OneByOne", cluster("b"), [cluster("a", follows=False)], ""),
        ("OneByOne", cluster("b"), [cluster("c", NEW)], ""),
        ("OneByOne", cluster("b"), [cluster("c", NEW, is_settled=False)], "WaitsForTurn"),
        ("OneByOne", cluster("b"), [cluster("c", NEW, is_settled=False, is_stalled=True)], "WaitsForTurn"),
        ("OneByOne", cluster("b"), [cluster("c", NEW, is_settled=False, is_out=True)], ""),
        ("OneByOne", cluster("b"), [cluster("c", NEW, is_settled=False, follows=False)], ""),
        ("OneByOne", cluster("b"), [cluster("b", NEW, is_settled=False)], ""),
    ],
)
def test_a_cluster_takes_the_new_image_when_the_policy_and_the_others_let_it(
    policy: str, mine: Candidate, others: list[Candidate], reason: str
) -> None:
    choice = choose(OnUpgrade(policy), NEW, mine, others)
    assert (choice.image, choice.held.reason if choice.held else "") == (mine.image if reason else NEW, reason)
    assert choice.held is None or NEW in choice.held.message


@pytest.mark.parametrize("broken", [{}, {"metadata": None, "status": "x"}, {"status": {"conditions": [None, {}]}}])
def test_an_object_that_cannot_be_read_is_a_candidate_that_stops_the_others(broken: Document) -> None:
    assert not candidate(broken, NEW).is_settled


class Play:
    """Clusters and their passes, of which several are under way at a time."""

    def __init__(self, count: int) -> None:
        self.objects = [document() for _ in range(count)]
        for number, each in enumerate(self.objects):
            each["metadata"] |= {"name": f"c{number}"}
            self.tell(each, OLD, True)
        self.refused = 0
        self.turns = Turns(self, Settings(NEW))

    @staticmethod
    def tell(of: Document, image: str, is_well: bool) -> None:
        said = WELL if is_well else WELL | {"Ready": "False"}
        of["status"] = {"image": image, "conditions": [{"type": kind, "status": is_} for kind, is_ in said.items()]}

    async def listed(self, folder: str, labels: Mapping[str, str]) -> list[Document]:
        assert folder == CLUSTERS and not labels
        if self.refused:
            raise KubeError("GET", self.refused, "as the test wants it")
        found = list(self.objects)
        await asyncio.sleep(0)  # what was read is old by now
        return found

    async def choose(self, of: Document) -> str:
        return (await self.turns.resolved(read(of), of)).image.name

    @property
    def begun(self) -> list[Document]:
        return [each for each in self.objects if each["status"]["image"] == NEW]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("trouble", ["starts", "stalls"])
def test_one_cluster_at_a_time_and_all_in_the_end(trouble: str, seed: int) -> None:
    """Passes side by side, statuses written late; operators that start again, or clusters that stall and recover."""
    play, dice = Play(5), random.Random(seed)
    given: set[str] = set()

    async def round_() -> None:
        order = dice.sample(play.objects, len(play.objects))
        chosen = await asyncio.gather(*(play.choose(each) for each in order))
        given.update(each["metadata"]["name"] for each, image in zip(order, chosen, strict=True) if image == NEW)

    for _ in range(200):
        asyncio.run(round_())
        unsettled = [each for each in play.objects if each["metadata"]["name"] in given]
        unsettled = [each for each in unsettled if each not in play.begun or not candidate(each, NEW).is_settled]
        assert len(unsettled) <= 1, given
        for each in unsettled:
            if dice.random() < 0.4:
                play.tell(each, NEW, each in play.begun)
        if trouble == "starts" and dice.random() < 0.5:
            play.turns = Turns(play, Settings(NEW))
        for each in play.objects:
            if trouble == "stalls" and each not in play.begun:
                each["status"]["conditions"][-1]["status"] = dice.choice(["True", "False"])
    assert len(play.begun) == 5


def test_a_cluster_waits_while_the_others_cannot_be_asked() -> None:
    play = Play(1)
    play.refused = 403
    (only,) = play.objects
    resolved = asyncio.run(play.turns.resolved(read(only), only))
    assert resolved.image.name == OLD and resolved.image.held is not None and "403" in resolved.image.held.message


@pytest.mark.parametrize(("runs", "image"), [("", ""), (OLD, OLD), (f"{OLD}, {NEW}", NEW), (f"{OLD}, other:1", OLD)])
def test_a_cluster_that_is_half_way_counts_as_begun(runs: str, image: str) -> None:
    """Also for a leader that has just begun, and knows no more than the status says."""
    assert candidate({"status": {"image": runs}}, NEW).image == image


def test_a_waiting_image_rolls_nothing_and_the_status_says_so() -> None:
    bench = Bench().works()
    before = bench.server.documents[SET]
    assert bench.conditions()["ImageUpToDate"] == ("True", "UpToDate")
    bench.upgrade("image:2", OnUpgrade.NONE)
    bench.once()
    assert bench.server.documents[SET] == before and bench.server.documents[PATH]["status"]["image"] == "image:1"
    assert bench.conditions()["ImageUpToDate"] == ("False", "NotAutomatic") and "image:2" in bench.said("ImageUpToDate")
    assert bench.conditions()["Ready"][0] == "True"
    bench.upgrade("image:2", OnUpgrade.ONE_BY_ONE)
    bench.once()
    (container,) = bench.server.documents[SET]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "image:2" and bench.conditions()["ImageUpToDate"][0] == "True"


def test_while_an_image_waits_a_person_changes_sets_and_another_operator_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench().works()
    before = bench.server.documents[SET]
    monkeypatch.setattr(brokers, "GRACE_S", brokers.GRACE_S + 1)  # another version makes other templates
    bench.upgrade("image:2", OnUpgrade.NONE)
    bench.once()
    assert bench.server.documents[SET] == before and not bench.server.deeds.count("apply ConfigMap")
    about = bench.server.documents[PATH]["metadata"]
    about["generation"] += 1
    bench.server.documents[PATH]["spec"]["brokers"]["podTemplate"] |= {"labels": {"team": "tea"}}
    bench.once()
    template = bench.server.documents[SET]["spec"]["template"]
    assert template["metadata"]["labels"]["team"] == "tea" and template["spec"]["containers"][0]["image"] == "image:1"


def test_the_policy_is_a_setting() -> None:
    image = {"GANTRY_OPERATOR_BROKER_IMAGE": OLD}
    assert from_environment(image).on_upgrade is OnUpgrade.ONE_BY_ONE
    assert from_environment(image | {"GANTRY_OPERATOR_ON_UPGRADE": "All"}).on_upgrade is OnUpgrade.ALL
    with pytest.raises(ValueError, match="GANTRY_OPERATOR_ON_UPGRADE 'Some': expected None, OneByOne, All"):
        from_environment(image | {"GANTRY_OPERATOR_ON_UPGRADE": "Some"})
