"""The master of a group is lost at each step of transactions; the next one asks, and SQLite has the ledger.

Members are real processes.  What a producer had begun at the old master is decided at the new one: what it ended there
or by the answer to a check, each outcome once.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gantry.local.layout import Who
from testkit.localplay import Cluster
from testkit.patience import HANG_S
from testkit.transactionledger import COMMIT, ROLLBACK, Business, Producer, delivered, open_count

ASK = {
    "transactions.check_interval_s": "0.2",
    "transactions.immunity_s": "0",
    "transactions.checks_max": "0",
    "topics.template_queues": "1",
}
FLAGS = ["--failover-timers", "fast", *(word for key, value in ASK.items() for word in ("--set", f"{key}={value}"))]
LOSSES = {  # what is done to the master, and how it is undone
    "killed": ("kill {} --keep-down", "start {}"),
    "stands still": ("pause {}", "resume {}"),
    "cut off": ("partition {}", "heal"),
    "killed and back": ("kill {}", ""),
}


def address(cluster: Cluster) -> tuple[str, int]:
    """Of who leads."""
    holder, layout = cluster.record().holder, cluster.folder.load().layout
    assert holder is not None
    return layout.address(Who(0, holder.member.ordinal)), layout.ports.broker


@contextlib.contextmanager
def producer_of(cluster: Cluster, business: Business) -> Iterator[Producer]:
    """A member of the group at the master of now."""
    producer = Producer(address(cluster), business)
    try:
        yield producer
    finally:
        producer.close()


def left_at_each_step(producer: Producer, business: Business, prefix: str) -> None:
    """Transactions whose producer stops after each step; the last of them within the moment of the loss."""

    def begun(step: str, outcome: int | None = None, *, is_ended: bool = False) -> None:
        key = f"{prefix}-{step}"
        answer = producer.half(key)
        assert answer.code == 0, answer.remark
        if outcome is not None:
            business.write(key, outcome)
        if is_ended:
            assert outcome is not None
            producer.end(answer.ext["queueOffset"], str(int(answer.ext["msgId"][16:], 16)), outcome)

    begun("asked", COMMIT)
    begun("asked-without-row")
    producer.answer_checks(1.0, is_silent=True)
    begun("half")
    begun("row", COMMIT)
    begun("rolled-row", ROLLBACK)
    begun("ended", COMMIT, is_ended=True)
    begun("rolled-back", ROLLBACK, is_ended=True)


def lose(cluster: Cluster, way: str) -> None:
    """The master goes, another one leads (or the same in another epoch), and everybody is back."""
    before = cluster.record()
    assert before.holder is not None
    name = Who(0, before.holder.member.ordinal).name
    act, repair = (text.format(name).split() for text in LOSSES[way])
    cluster.do(*act)
    after = cluster.until_served(before.epoch)
    assert after.epoch > before.epoch and after.holder != before.holder
    if repair:
        assert after.holder is not None and after.holder.member != before.holder.member
        cluster.do(*repair)


def settled(cluster: Cluster, business: Business) -> set[str]:
    """Every half is decided and each outcome is there once; what the master of now had to ask for."""
    with producer_of(cluster, business) as producer, cluster.client(Who(0, ordinal_of(cluster))) as reader:
        until = time.monotonic() + HANG_S
        while open_count(reader):
            assert time.monotonic() < until, f"halves stay open although they are answered\n{cluster.story()}"
            producer.answer_checks(0.3)
        cluster.until(lambda: len(delivered(reader)) >= len(business.committed()), "what was committed is shown")
        assert sorted(delivered(reader)) == business.committed()
        return producer.asked


def ordinal_of(cluster: Cluster) -> int:
    """Of who leads."""
    holder = cluster.record().holder
    assert holder is not None
    return holder.member.ordinal


def test_a_master_that_is_lost_at_each_step_leaves_nothing_that_the_next_one_does_not_settle_once(
    tmp_path: Path,
) -> None:
    business = Business(tmp_path / "orders.db")
    with Cluster(tmp_path / "cluster", *FLAGS) as cluster:
        cluster.until_all_in_sync()
        with producer_of(cluster, business) as producer:
            left_at_each_step(producer, business, "one")
        lose(cluster, "killed")
        asked = settled(cluster, business)
        assert {"one-asked", "one-asked-without-row", "one-half", "one-row", "one-rolled-row"} <= asked


@pytest.mark.slow
def test_masters_that_are_lost_in_every_way_again_and_again_settle_every_transaction_once(tmp_path: Path) -> None:
    business, chance = Business(tmp_path / "orders.db"), random.Random(5)
    with Cluster(tmp_path / "cluster", *FLAGS) as cluster:
        for number in range(12):
            cluster.until_all_in_sync()
            with producer_of(cluster, business) as producer:
                producer.answer_checks(chance.choice((0.0, 0.3)))
                left_at_each_step(producer, business, f"o{number:02d}")
            lose(cluster, list(LOSSES)[number % len(LOSSES)])
            if number % 3 == 2:
                settled(cluster, business)
        settled(cluster, business)
