"""What becomes of the operator must not concern traffic: it is killed while it works, its API server stands still.

On real kubelets, with a producer whose ledger says what was acknowledged.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.kube.api import RefusedError
from testkit.kube.cluster import Cluster
from testkit.kube.orders import BROKERCLUSTER, SYSTEM, Orders

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

OPERATORS_LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/gantrymq"
AWAY_S = 60.0
PAUSE_S_MAX = 30.0  # of a producer, on a machine that does much else


@pytest.fixture(scope="module")
def orders(cluster: Cluster) -> Iterator[Orders]:
    found = Orders(cluster)
    found.install()
    found.apply()
    found.client("topic", "create", "tea")
    yield found
    found.uninstall()


def pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def leader(orders: Orders) -> str:
    """The pod that works; empty: nobody."""
    try:
        holder = str(orders.cluster.admin.get(OPERATORS_LEASE)["spec"]["holderIdentity"])
    except RefusedError:
        return ""
    return holder.partition("_")[0]


def process_of(pod: str) -> int:
    """Its process, as this machine sees it; 0: there is none."""
    wanted = f"GANTRY_OPERATOR_IDENTITY={pod}".encode()
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdecimal() and wanted in (folder / "environ").read_bytes().split(b"\0"):
                return int(folder.name)
        except OSError:  # it has just ended
            continue
    return 0


def longest_pause_s(orders: Orders, book: str) -> float:
    times = sorted(orders.ledger(book).values())
    return max(later - earlier for earlier, later in itertools.pairwise(times)) / 1000


def test_an_operator_that_is_killed_again_and_again_rolls_a_change_out_all_the_same(orders: Orders) -> None:
    before, book, kills = orders.uids(), "/tmp/killed", 0
    with orders.producer(book, "k", 240) as producer:
        orders.until_producing(book)
        orders.cluster.admin.merge(BROKERCLUSTER, {"spec": {"brokers": {"config": {"pull.count_max": "256"}}}})
        for left in (2, 1, 0):
            orders.until(lambda: leader(orders) and process_of(leader(orders)), "somebody works")
            pid = process_of(leader(orders))
            if pid:
                os.kill(pid, signal.SIGKILL)
                kills += 1
            orders.until(lambda: len(before & orders.uids()) <= left, f"{left} are left")  # noqa: B023
        orders.until(orders.is_ready, "all is well again")
        orders.until_in_sync()
        producer.wait(300)
    print(f"killed {kills} times")
    assert kills
    orders.report(book, "killed")


def test_an_api_server_that_stands_still_for_a_minute_stops_no_message(orders: Orders) -> None:
    epoch, book = orders.epoch(), "/tmp/away"
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
