"""Java's consumer and a group of ours: it reads from the slave while the master is down, and what it reports counts."""

from pathlib import Path

import pytest

from interop.clients import Client
from interop.processes import running
from testkit.pairplay import Pair, until

pytestmark = pytest.mark.only_on_gantry


def bodies(found: list[dict[str, object]]) -> list[str]:
    return sorted(str(one["body"]) for one in found)


def shown(pair: Pair, broker_id: int, topic: str) -> int:
    with pair.client(broker_id) as client:
        return sum(len(client.read(topic, queue)) for queue in range(4))


def committed(pair: Pair, broker_id: int, group: str, topic: str) -> int:
    with pair.client(broker_id) as client:
        asked = {"consumerGroup": group, "topic": topic}
        replies = [client.call(14, asked | {"queueId": str(queue)}) for queue in range(4)]
        return sum(int(reply.ext.get("offset", "0")) for reply in replies)


@pytest.mark.slow
def test_a_consumer_reads_from_the_slave_of_a_dead_master_and_its_offsets_come_to_the_master(
    java: Client, name: str, tmp_path: Path
) -> None:
    with Pair(tmp_path, role="ASYNC_MASTER") as pair:
        pair.start(0)
        pair.start(1)
        pair.until_writable("other")
        with running(java.start(tmp_path / "client", "{}:{}".format(*pair.nameserver))) as driver:
            driver.call("send", group=name, topic=name, count=20, prefix="before")
            driver.call("subscribe", id="one", group=name, topic=name)
            driver.receive("one", 20)
            driver.call("close", id="one")
            until(lambda: committed(pair, 0, name, name) == 20, "the first consumer has reported all")
            driver.call("send", group=name, topic=name, count=20, prefix="unread")
            until(lambda: shown(pair, 1, name) == 40, "the slave shows all")
            until(lambda: committed(pair, 1, name, name) == 20, "the slave knows the offsets")

            pair.members[0].kill()
            driver.call("subscribe", id="two", group=name, topic=name)
            assert bodies(driver.receive("two", 20)) == sorted(f"unread-{i}" for i in range(20))
            until(lambda: committed(pair, 1, name, name) == 40, "the slave was told")

            pair.start(0)
            until(lambda: committed(pair, 0, name, name) == 40, "the master was told by the slave")
            with pair.client(0) as client:
                client.send(name, 0, b"after")
                reply = client.reply()
                assert reply is not None and reply.code == 0
            assert bodies(driver.receive("two", 21))[0] == "after"
