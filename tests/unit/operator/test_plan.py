"""What to do next: from any state to the wished one, one action at a time, never with more than one member away."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from gantry.replication.members import Member
from gantry.replication.record import MemberDisk
from gantry_operator.api.brokercluster import Group
from gantry_operator.api.terms import Terms
from gantry_operator.desired.brokers import as_run
from gantry_operator.plan import next_step
from gantry_operator.podseen import Pod
from gantry_operator.snapshot import Answer, GroupSeen, Register, Snapshot
from gantry_operator.steps import Forget, HandOver, Hold, Replace, Resize, Step
from testkit.kube.clusters import cluster

SYNC = Terms(True, 2, 5.0, 15)


def seen(
    revisions: list[str], master: int | None = 0, unready: frozenset[int] = frozenset(), in_sync: int | None = None
) -> GroupSeen:
    """A group whose pods have these revisions ("" is no pod), `new` being the current one."""
    (group,) = cluster(replicasPerGroup=len(revisions)).groups()
    pods = {
        group.pod(ordinal): Pod(group.pod(ordinal), f"u{ordinal}", ordinal not in unready, False, "", revision)
        for ordinal, revision in enumerate(revisions)
        if revision
    }
    members = frozenset(Member(each, 0) for each in range(len(revisions) if in_sync is None else in_sync))
    register = Register("Active", 1, master, members)
    return GroupSeen(group, register, pods, "new", replicas=len(revisions))


def step(*groups: GroupSeen) -> Step | None:
    return next_step(Snapshot(groups[0].group.cluster, groups))


def replaced(found: Step | None) -> str:
    assert isinstance(found, Replace), found
    return found.pod.name


def test_what_is_current_is_left_alone() -> None:
    assert step(seen(["new", "new", "new"])) is None


def test_slaves_go_first_and_the_master_last() -> None:
    assert replaced(step(seen(["old", "old", "old"], master=0))) == "orders-b0-1"
    assert replaced(step(seen(["old", "new", "old"], master=0))) == "orders-b0-2"
    assert replaced(step(seen(["old", "new", "new"], master=0))) == "orders-b0-0"


def test_nobody_is_replaced_while_another_one_is_away_or_behind() -> None:
    assert isinstance(step(seen(["old", "", "old"])), Hold)
    assert isinstance(step(seen(["old", "new", "old"], unready=frozenset({1}))), Hold)
    assert isinstance(step(seen(["old", "new", "old"], in_sync=2)), Hold)
    assert isinstance(step(seen(["old", "old", "old"], unready=frozenset({1, 2}))), Hold)


def test_a_member_that_is_broken_anyway_is_replaced_first() -> None:
    assert replaced(step(seen(["old", "old", "old"], master=0, unready=frozenset({2}), in_sync=2))) == "orders-b0-2"


def beside(pod: Pod) -> Pod:
    """Its server works, and another container of the pod ends again and again."""
    return replace(pod, is_ready=False, has_server=True, trouble="crash", container="proxy")


def test_a_master_beside_a_container_that_crashes_is_replaced_last_and_one_at_a_time() -> None:
    group = seen(["old", "old", "old"], master=0)
    group = replace(group, pods={name: beside(pod) for name, pod in group.pods.items()})
    assert replaced(step(group)) == "orders-b0-1"
    behind = replace(group, register=seen(["old"] * 3, in_sync=2).register)
    assert isinstance(step(behind), Hold)
    fresh = seen(["new"] * 3).pods
    last = {name: pod if name == "orders-b0-0" else fresh[name] for name, pod in group.pods.items()}
    assert replaced(step(replace(group, pods=last))) == "orders-b0-0"


def test_a_container_that_crashes_in_the_present_template_is_not_spread() -> None:
    group = seen(["old", "new", "old"], master=0)
    assert isinstance(step(replace(group, pods=group.pods | {"orders-b0-1": beside(group.pods["orders-b0-1"])})), Hold)


def test_members_that_cannot_come_up_as_they_are_wait_for_nobody() -> None:
    group = seen(["old", "old", "old"], master=None, unready=frozenset({0, 1, 2}), in_sync=0)
    stuck = {name: replace(pod, trouble="image") for name, pod in group.pods.items()}
    assert replaced(step(replace(group, pods=stuck, register=None))) == "orders-b0-0"


def test_nobody_is_asked_to_go_twice() -> None:
    group = seen(["old", "old", "old"], unready=frozenset({1}), in_sync=2)
    leaving = dict(group.pods) | {"orders-b0-1": replace(group.pods["orders-b0-1"], is_going=True)}
    assert isinstance(step(replace(group, pods=leaving)), Hold)


def test_one_group_waits_for_another_but_not_for_one_whose_node_is_lost() -> None:
    first, second = seen(["old", "old", "old"], unready=frozenset({1})), seen(["old", "old", "old"])
    first = replace(first, pods={**first.pods, "orders-b0-1": replace(first.pods["orders-b0-1"], revision="new")})
    assert isinstance(step(first, second), Hold)
    assert replaced(step(replace(first, absent=frozenset({1})), second)) == "orders-b0-1"


def test_a_template_that_its_controller_has_not_seen_replaces_nobody() -> None:
    assert isinstance(step(replace(seen(["old", "old", "old"]), revision="")), Hold)


def test_a_group_shrinks_after_its_new_terms_hold_where_the_old_ones_need_more() -> None:
    group = seen(["old", "old"], master=0)
    (one,) = cluster(replicasPerGroup=1, profile="fast").groups()
    pods = {name: replace(pod, terms=SYNC) for name, pod in group.pods.items()}
    group = replace(group, group=one, pods=pods)
    assert replaced(step(group)) == "orders-b0-1"
    fresh = {name: replace(pod, revision="new", terms=Terms(False, 1, 5.0, 15)) for name, pod in pods.items()}
    assert step(replace(group, pods=fresh)) == Resize(replace(group, pods=fresh), 1)


@cache
def group_of(replicas: int) -> Group:
    (group,) = cluster(replicasPerGroup=replicas, profile="fast").groups()
    return replace(group, cluster=replace(group.cluster, drops_claims=True))


@dataclass
class World:
    """A group and its set's controller; members come up, fall in step and go when `settle` says so."""

    wanted: int
    revisions: dict[int, str]
    set_replicas: int
    master: int
    unready: set[int] = field(default_factory=set)
    going: set[int] = field(default_factory=set)
    in_sync: set[int] = field(default_factory=set)
    claims: set[int] = field(default_factory=set)

    def snapshot(self) -> Snapshot:
        group = group_of(self.wanted)
        config = as_run(group)
        pods = {
            group.pod(each): Pod(
                group.pod(each), f"u{each}", each not in self.unready | self.going, each in self.going, "", revision,
                Terms(False, 1, 5.0, 15),
            )
            for each, revision in self.revisions.items()
        }  # fmt: skip
        stores = {each: MemberDisk(f"disk{each}", 0) for each in self.claims}
        members = frozenset(Member(each, 0) for each in self.in_sync)
        register = Register("Active", 1, self.master, members, stores=stores)
        answers = {each: Answer(config) for each in self.revisions if each not in self.unready | self.going}
        claims = {each: f"c{each}" for each in self.claims if each >= self.wanted}
        replicas = self.set_replicas
        seen = GroupSeen(group, register, pods, "new", replicas, answers=answers, claims=claims)
        return Snapshot(group.cluster, [seen])

    def at_work(self) -> set[int]:
        return {each for each in self.in_sync & self.revisions.keys() if each not in self.unready | self.going}

    def do(self, step: Step) -> None:
        match step:
            case Replace(pod):
                self.going.add(int(pod.name[-1]))
            case Resize(_, replicas):
                self.set_replicas = replicas
                self.going |= {each for each in self.revisions if each >= replicas}
            case HandOver(_, target):
                assert target in self.at_work()
                self.master = target
            case Forget(_, ordinal):
                assert ordinal not in self.revisions and ordinal not in self.in_sync
                self.claims.discard(ordinal)
            case _:
                raise AssertionError(step)

    def settle(self, rounds: int) -> None:
        """Time passes: each round somebody goes, or comes, or falls in step."""
        for _ in range(rounds):
            missing = [each for each in range(self.set_replicas) if each not in self.revisions]
            if self.going:
                gone = min(self.going)
                self.going.discard(gone)
                self.unready.discard(gone)
                del self.revisions[gone]
                others = sorted(self.at_work() - {gone})
                if self.master == gone and others:
                    self.master = others[0]
                if self.master != gone:
                    self.in_sync.discard(gone)
            elif missing:
                self.revisions[missing[0]] = "new"
                self.unready.add(missing[0])
                self.claims.add(missing[0])
            elif self.unready:
                self.unready.discard(min(self.unready))
            else:
                self.in_sync |= set(sorted(self.revisions.keys() - self.in_sync)[:1])


@st.composite
def worlds(draw: st.DrawFn) -> World:
    size, wanted = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    revisions = {each: draw(st.sampled_from(["old", "new"])) for each in range(size)}
    unready = draw(st.sets(st.integers(0, size - 1), max_size=1))
    master = draw(st.integers(0, size - 1))
    in_sync = set(range(size)) - draw(st.sets(st.integers(0, size - 1), max_size=1)) | {master}
    return World(wanted, revisions, size, master, unready, set(), in_sync, set(range(size)))


@settings(max_examples=40, deadline=None)
@given(worlds(), st.lists(st.integers(0, 3), max_size=60))
def test_from_any_state_the_wished_one_is_reached_and_nobody_goes_while_another_one_is_away(
    world: World, pauses: list[int]
) -> None:
    """`pauses`: how much happens before the operator, or another one after its death, looks again."""
    for pause in [*pauses, *[8] * 60]:
        before = world.at_work()
        bound = min(len(before), max(world.set_replicas, world.wanted) - 1)
        step = next_step(world.snapshot())
        if step is not None and not isinstance(step, Hold):
            world.do(step)
            is_alone = world.set_replicas == 1
            assert len(world.at_work()) >= (bound if not is_alone else 0), step
            assert world.master in world.in_sync
        world.settle(pause)
    assert next_step(world.snapshot()) is None
    assert set(world.revisions.values()) == {"new"} and len(world.revisions) == world.wanted == world.set_replicas
    assert world.claims == set(range(world.wanted)) and world.in_sync == set(range(world.wanted))
