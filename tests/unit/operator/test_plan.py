"""Rolling updates: from any state to the wished one, never with more than one member away, masters last."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gantry.replication.members import Member
from gantry_operator.plan import Hold, Replace, roll
from gantry_operator.snapshot import GroupSeen, Pod, Register, Snapshot
from testkit.kube.clusters import cluster


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
    return GroupSeen(group, Register("Active", 1, master, members), pods, "new")


def step(*groups: GroupSeen) -> Replace | Hold | None:
    return roll(Snapshot(groups[0].group.cluster, groups, 2))


def replaced(found: Replace | Hold | None) -> str:
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


def test_nobody_is_asked_to_go_twice() -> None:
    group = seen(["old", "old", "old"], unready=frozenset({1}), in_sync=2)
    leaving = dict(group.pods) | {"orders-b0-1": replace(group.pods["orders-b0-1"], is_going=True)}
    assert isinstance(step(replace(group, pods=leaving)), Hold)


def test_one_group_waits_for_another() -> None:
    first, second = seen(["old", "", "old"]), seen(["old", "old", "old"])
    assert isinstance(step(first, second), Hold)


def test_a_template_that_its_controller_has_not_seen_replaces_nobody() -> None:
    assert step(replace(seen(["old", "old", "old"]), revision="")) is None


@given(
    st.lists(st.sampled_from(["old", "new", ""]), min_size=1, max_size=5),
    st.sets(st.integers(0, 4)),
    st.integers(0, 5),
    st.integers(0, 4),
)
def test_never_two_are_away_and_what_can_be_done_ends(
    revisions: list[str], unready: set[int], in_sync: int, master: int
) -> None:
    master %= len(revisions)
    found = step(seen(revisions, master, frozenset(unready), min(in_sync, len(revisions))))
    if isinstance(found, Replace):
        away = {each for each, revision in enumerate(revisions) if not revision or each in unready}
        assert found.pod.revision == "old"
        assert away <= {int(found.pod.name[-1])}
    for _ in range(len(revisions) + 1):
        healthy = seen([each or "new" for each in revisions], master)
        found = step(healthy)
        if found is None:
            break
        ordinal = int(replaced(found)[-1])
        revisions[ordinal] = "new"
        master = (ordinal + 1) % len(revisions) if ordinal == master else master
    assert "old" not in revisions
