"""HTTP topics over kill -9 of the broker."""

from __future__ import annotations

from pathlib import Path

from scenarios.test_http_topics import publish, put_topic, subscribed_queue, taken
from testkit.mnscalls import MnsCaller
from testkit.process import GantryProcess

CONFIG = {"standalone.queues_port": "0"}


def test_a_new_subscription_gets_nothing_from_before_also_when_the_broker_is_killed_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with GantryProcess(folder, CONFIG) as process, MnsCaller(process.addresses["queues"]) as mns:
        put_topic(mns, "news")
        for number in range(8):
            publish(mns, "news", f"before {number}")
        subscribed_queue(mns, "news", "reader")
        process.kill()
    with GantryProcess(folder, CONFIG) as process, MnsCaller(process.addresses["queues"]) as mns:
        publish(mns, "news", "after")
        found = taken(mns, "reader", {"after"})
        found += mns.receive("reader", wait_s=5, count=16).texts("MessageBody")
        assert found == ["after"]
