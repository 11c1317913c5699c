"""Clients of others, unmodified, in pods of another namespace: they find a cluster by its Service, and it fails over.

Apache's Java client in two versions and the C++ client 2.1.8, on real kubelets.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from interop import prepare
from interop.processes import Driver
from testkit.kube.cluster import Cluster
from testkit.kube.orders import PODS, SMALL, Orders
from testkit.kube.strangers import Strangers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

CLIENTS = ("java-4.9.7", "java-5.x", "cpp-2.1.8")
WITHIN_S = 180.0
ASK = {"transactions.immunity_s": "1", "transactions.check_interval_s": "2"}


@pytest.fixture(scope="module")
def orders(cluster: Cluster) -> Iterator[Orders]:
    for kind in ("java", "cpp"):
        try:
            prepare.require(kind)
        except prepare.MissingToolError as error:
            pytest.skip(str(error))
    found = Orders(cluster)
    found.install()
    found.apply(config=SMALL | ASK)
    yield found
    found.uninstall()


@pytest.fixture(scope="module")
def strangers(orders: Orders, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Strangers]:
    with Strangers(orders.cluster, tmp_path_factory.mktemp("strangers")) as found:
        found.pod("first")
        yield found


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_of_somebody_else_sends_and_receives_through_services(
    orders: Orders, strangers: Strangers, name: str
) -> None:
    topic = "of-" + name.replace(".", "-")
    orders.client("topic", "create", topic)
    driver = strangers.driver(name, "first")
    driver.call("subscribe", WITHIN_S, id=topic, group=topic, topic=topic)
    sent = driver.call("send", WITHIN_S, group=f"p-{topic}", topic=topic, count=10, prefix="m", tag="TagA")
    results = sent["results"]
    assert isinstance(results, list) and {each["status"] for each in results} <= {"SEND_OK", "OK"}
    assert {str(each["body"]) for each in driver.receive(topic, 10, WITHIN_S)} == {f"m-{each}" for each in range(10)}
    assert set(orders.consumed(f"ours-{topic}", topic)) == {f"m-{each}" for each in range(10)}
    driver.quit()


def test_what_clients_of_others_were_told_outlives_a_master_whose_pod_is_deleted(
    orders: Orders, strangers: Strangers
) -> None:
    orders.client("topic", "create", "shared")
    drivers = {name: strangers.driver(name, "first") for name in CLIENTS}
    told: dict[str, set[str]] = {name: set() for name in CLIENTS}
    for name, driver in drivers.items():
        driver.begin("load", group=f"load-{name[:4]}-{name[-1]}", topic="shared", prefix=name, pause=20)

    def more(least: int) -> bool:
        for name, driver in drivers.items():
            told[name] |= {str(each["body"]) for each in driver.take() if each["event"] == "acked"}
        return all(len(bodies) >= least for bodies in told.values())

    orders.until(lambda: more(50), "all of them send")
    former, epoch = orders.master(), orders.epoch()
    orders.cluster.admin.delete(f"{PODS}/{former}")
    orders.until(lambda: orders.epoch() > epoch and orders.masters() not in ([], [former]), "somebody else leads")
    most = max(map(len, told.values()))
    orders.until(lambda: more(most + 50), "all of them send again")
    for driver in drivers.values():
        driver.begin("unload")
    for driver in drivers.values():
        driver.settle(5.0)
    more(0)
    found = set(orders.consumed("all-of-it", "shared"))
    print({name: len(bodies) for name, bodies in told.items()}, f"epochs {orders.epoch() - epoch}")
    for name, bodies in told.items():
        assert not bodies - found, f"{name}: {len(bodies - found)} of {len(bodies)} are lost"
        drivers[name].kill()
    orders.until_in_sync()


def test_a_half_of_a_pod_that_died_is_asked_about_by_the_next_master_and_answered_by_another_pod(
    orders: Orders, strangers: Strangers
) -> None:
    orders.client("topic", "create", "paid")
    strangers.pod("dying")
    dying = strangers.driver("java-5.x", "dying")
    fields = {"kind": "transaction", "topic": "paid", "count": 1, "execute": "halt", "answer": "commit"}
    dying.begin("send", group="tx-paid", prefix="orphan", **fields)
    dying.event("executed", WITHIN_S)
    strangers.kill("dying")

    former, epoch = orders.master(), orders.epoch()
    orders.cluster.admin.delete(f"{PODS}/{former}")
    orders.until(lambda: orders.epoch() > epoch and orders.masters() not in ([], [former]), "somebody else leads")
    assert orders.consumed("too-early", "paid") == []
    other = strangers.driver("java-5.x", "first")
    other.call("open", WITHIN_S, group="tx-paid")
    rolled = {"kind": "transaction", "topic": "paid", "count": 1, "execute": "rollback"}
    other.call("send", WITHIN_S, group="tx-paid", prefix="other", **rolled)  # it greets only brokers that it has used
    assert "orphan-key-0" in checked(other)
    orders.until(lambda: orders.consumed("in-time", "paid") == ["orphan-0"], "what was committed is delivered")
    other.quit()
    orders.until_in_sync()


def checked(driver: Driver) -> str:
    """The keys of the first message that the master asked about."""
    return json.dumps(driver.event("checked", WITHIN_S)["keys"])
