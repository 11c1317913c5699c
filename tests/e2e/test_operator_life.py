"""What becomes of the operator must not concern traffic: it is killed while it works, its API server stands still.

On real kubelets, with a producer whose ledger says what was acknowledged; writes are counted in the audit log.  All
pods have tokens of ten minutes, the shortest that there are, so members and operators get several while it lasts.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from testkit.kube import audit, shorttokens
from testkit.kube.api import RefusedError
from testkit.kube.cluster import Cluster
from testkit.kube.faults import OPERATOR, frozen, kill, leader
from testkit.kube.orders import BROKERCLUSTER, LEASE, SYSTEM, Orders

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

ACCOUNT = f"system:serviceaccount:{SYSTEM}:gantrymq"
AWAY_S, QUIET_S = 60.0, 600.0
PAUSE_S_MAX = 30.0  # of a producer, on a machine that does much else


@pytest.fixture(scope="module")
def orders(cluster: Cluster) -> Iterator[Orders]:
    shorttokens.apply(cluster)
    found = Orders(cluster)
    found.install()
    found.apply()
    found.client("topic", "create", "tea")
    yield found
    found.uninstall()
    shorttokens.remove(cluster)


def pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def longest_pause_s(orders: Orders, book: str) -> float:
    times = sorted(orders.ledger(book).values())
    return max(later - earlier for earlier, later in itertools.pairwise(times)) / 1000


def test_an_operator_that_is_killed_again_and_again_rolls_a_change_out_all_the_same(orders: Orders) -> None:
    before, book, kills = orders.uids(), "killed", 0
    with orders.producer(book, "k", 240) as producer:
        orders.until_producing(book)
        orders.cluster.admin.merge(BROKERCLUSTER, {"spec": {"brokers": {"config": {"pull.count_max": "256"}}}})
        for left in (2, 1, 0):
            orders.until(lambda: kill(leader(orders), OPERATOR), "somebody worked")
            kills += 1
            orders.until(lambda: len(before & orders.uids()) <= left, f"{left} are left")  # noqa: B023
        orders.until(orders.is_ready, "all is well again")
        orders.until_in_sync()
        producer.wait(300)
    print(f"killed {kills} times, longest pause {longest_pause_s(orders, book):.1f} s")
    orders.report(book, "killed")


def test_an_api_server_that_stands_still_for_a_minute_stops_no_message(orders: Orders) -> None:
    epoch, book = orders.epoch(), "away"
    with orders.producer(book, "a", 150) as producer:
        orders.until_producing(book)
        with orders.cluster.daemons.frozen("kube-apiserver"):
            pause(AWAY_S)
        start = time.monotonic()
        orders.until(lambda: leader(orders) and orders.is_ready(), "somebody works")
        print(f"somebody worked {time.monotonic() - start:.1f} s after the API server was back")
        producer.wait(300)
    print(f"longest pause {longest_pause_s(orders, book):.1f} s, epochs {orders.epoch() - epoch}")
    assert longest_pause_s(orders, book) < PAUSE_S_MAX
    orders.report(book, "away")
    orders.until_in_sync()


def test_a_register_that_somebody_deletes_is_made_again_and_nothing_is_lost(orders: Orders) -> None:
    book = "deleted"
    with orders.producer(book, "d", 90) as producer:
        orders.until_producing(book)
        epoch = orders.epoch()
        orders.cluster.admin.delete(LEASE)
        orders.until(lambda: exists(orders) and orders.epoch() > epoch and orders.masters(), "the group has a register")
        producer.wait(200)
    orders.report(book, "deleted")
    orders.until_in_sync()
    orders.until(orders.is_ready, "all is well again")


def exists(orders: Orders) -> bool:
    try:
        orders.cluster.admin.get(LEASE)
    except RefusedError:
        return False
    return True


def test_a_leader_that_is_frozen_beyond_its_lease_is_followed_and_ends_when_it_goes_on(orders: Orders) -> None:
    orders.until(lambda: leader(orders), "somebody works")
    former, epoch = leader(orders), orders.epoch()
    restarts = starts(orders, former)
    with frozen(former, OPERATOR):
        start = time.monotonic()
        orders.until(lambda: leader(orders) not in ("", former), "another one works")
        print(f"another one worked {time.monotonic() - start:.1f} s after the first stood still")
        late = len(audit.writes(orders.cluster.folder, ACCOUNT))
    orders.until(lambda: starts(orders, former) > restarts, "anyone who slept has ended")
    assert leader(orders) != former and orders.epoch() == epoch
    since = audit.writes(orders.cluster.folder, ACCOUNT)[late:]
    assert not [each for each in since if each.resource != "leases" and each.status >= 400]


def starts(orders: Orders, pod: str) -> int:
    """How often its container was started again."""
    found = orders.cluster.admin.get(f"/api/v1/namespaces/{SYSTEM}/pods/{pod}")
    return int(found["status"]["containerStatuses"][0]["restartCount"])


def test_a_cluster_that_nobody_changes_costs_no_write_but_renewals(orders: Orders) -> None:
    orders.until_in_sync()
    orders.until(orders.is_ready, "all is well")
    book = "quiet"
    with orders.producer(book, "q", int(QUIET_S) + 60, pause_ms=20.0) as producer:
        orders.until_producing(book)
        pause(10)
        before = len(audit.writes(orders.cluster.folder))
        pause(QUIET_S)
        late = audit.writes(orders.cluster.folder)[before:]
        producer.wait(200)
    ours = [each for each in late if each.user == ACCOUNT]
    members = [each for each in late if each.user.startswith("system:serviceaccount:messaging:")]
    print(f"{len(ours)} writes of the operator, {len(members)} of brokers in {QUIET_S:.0f} s")
    print(Counter((each.verb, each.resource, each.name) for each in (*ours, *members)))
    assert {(each.resource, each.name) for each in ours} == {("leases", "gantrymq")}
    assert {(each.resource, each.name) for each in members} == {("leases", "orders-b0")}
    assert not [each for each in (*ours, *members) if each.status >= 400]
    for who, writes in (("operator", ours), ("master", members)):
        tokens = len({each.token for each in writes})
        print(f"tokens of the {who}: {tokens}")
        assert tokens > 1
    orders.report(book, "quiet")
