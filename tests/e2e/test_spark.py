"""Spark on Kubernetes: manifests applied by kubectl, run by the real spark-operator as pods of our image.

The jobs read the cluster that the chart installed; what they made is held against what producers were told.
"""

from __future__ import annotations

import json
import secrets
import time
from collections import defaultdict
from collections.abc import Iterator

import psycopg
import pytest

from e2e.conftest import require
from testkit.kube import audit, binaries, database
from testkit.kube.cluster import Cluster
from testkit.kube.orders import Orders
from testkit.kube.sparkplay import SINGLE, SparkJobs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]

TOPIC = "purchases"
SHARED = {"resources: {requests: {storage: 20Gi}}": "resources: {requests: {storage: 1Gi}}\n  storageClassName: shared"}
ARCHIVE, DRIVER = "orders-archive", "orders-archive-driver"
QUICK = {"--every=1 minute": "--every=2 seconds"}
BOOK = "orders"
# How the driver is kept from the executors' node, by the words of the kind itself.
APART = {
    "driver:\n": "driver:\n    nodeSelector: {kubernetes.io/hostname: node1}\n",
    "executor:\n": "executor:\n    nodeSelector: {kubernetes.io/hostname: node2}\n",
}


@pytest.fixture(scope="module")
def jobs(cluster: Cluster) -> Iterator[SparkJobs]:
    require(*binaries.GROUPS["spark"])
    orders = Orders(cluster)
    orders.install()
    orders.apply()
    orders.client("topic", "create", TOPIC)
    found = SparkJobs(orders)
    found.install()
    found.apply("rights.yaml")
    found.apply("volume.yaml", SHARED)
    found.read()
    yield found
    found.delete("namespace", SINGLE)
    found.delete("namespace", "spark")
    orders.uninstall()


@pytest.fixture(scope="module")
def archived(jobs: SparkJobs) -> SparkJobs:
    """A stream that lost its driver in the middle, and everything that was sent to it."""
    start = time.monotonic()
    with jobs.orders.producer(BOOK, "p", 900, TOPIC, pause_ms=40.0) as producer:
        jobs.orders.until_producing(BOOK)
        jobs.apply("archive.yaml", QUICK)
        jobs.until(lambda: len(jobs.archived()) > 100, "messages are archived")
        print(f"archived {time.monotonic() - start:.0f} s after it was applied")
        loses_its_driver(jobs)
        jobs.orders.stop_producers()
        producer.wait(120)
    told = set(jobs.orders.ledger(BOOK))
    jobs.until(lambda: told <= {body for body, _, _ in jobs.archived()}, "everything is archived")
    return jobs


def loses_its_driver(jobs: SparkJobs) -> None:
    """Its pod is deleted; the application starts another one, which goes on."""
    (former,) = jobs.pods(ARCHIVE, "driver")
    done = jobs.orders.kubectl("delete", "pod", DRIVER, "-n", "spark", "--grace-period=1", "--timeout=120s")
    assert done.returncode == 0, done.stderr
    start, before = time.monotonic(), len(jobs.archived())

    def goes_on() -> bool:
        others = [each for each in jobs.pods(ARCHIVE, "driver") if each["metadata"]["uid"] != former["metadata"]["uid"]]
        return bool(others) and len(jobs.archived()) > before + 100

    jobs.until(goes_on, "another driver archives")
    print(f"another driver archives {time.monotonic() - start:.0f} s after the first one was deleted")


def test_a_stream_whose_driver_is_deleted_goes_on_and_archives_every_message_once(archived: SparkJobs) -> None:
    rows = archived.archived()
    queues: dict[int, list[int]] = defaultdict(list)
    for _, queue, offset in rows:
        queues[queue].append(offset)
    # Each place of the log once.  A body may be there twice: a producer that waits too long for an answer asks again.
    assert all(sorted(offsets) == list(range(len(offsets))) for offsets in queues.values())
    told = archived.orders.ledger(BOOK)
    assert set(told) <= {body for body, _, _ in rows}
    print(f"{len(told)} acknowledged, {len(rows)} archived")


def test_driver_and_executors_are_pods_of_the_image_as_the_manifest_wants_them(archived: SparkJobs) -> None:
    (driver,) = archived.pods(ARCHIVE, "driver")
    archived.until(lambda: len(archived.pods(ARCHIVE, "executor")) == 2, "both executors run")
    for pod in (driver, *archived.pods(ARCHIVE, "executor")):
        (container,) = pod["spec"]["containers"]
        assert container["image"] == "docker.io/gantrymq/spark:0.1.0"
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert pod["spec"]["securityContext"]["runAsUser"] == 185
        assert pod["metadata"]["labels"]["gantrymq.io/client"] == "yes"
        assert {"name": "work", "mountPath": "/spark"} in container["volumeMounts"]
    assert archived.state(ARCHIVE) == "RUNNING"


def test_a_driver_answers_prometheus_for_itself_its_stream_and_its_executors(archived: SparkJobs) -> None:
    (driver,) = archived.pods(ARCHIVE, "driver")
    (container,) = driver["spec"]["containers"]
    (port,) = (each["containerPort"] for each in container["ports"] if each["name"] == "spark-ui")
    told = driver["metadata"]["annotations"]
    assert told["prometheus.io/port"] == str(port)
    own = fetched(archived, f"{driver['status']['podIP']}:{port}{told['prometheus.io/path']}")
    assert "metrics_gantrymq_driver_BlockManager_memory_maxMem_MB" in own and "inputRate_total" in own
    others = fetched(archived, f"{driver['status']['podIP']}:{port}/metrics/executors/prometheus")
    assert "metrics_executor_totalInputBytes" in others or "metrics_executor_completedTasks" in others


def fetched(jobs: SparkJobs, address: str) -> str:
    script = f"import urllib.request as r; print(r.urlopen('http://{address}', timeout=30).read().decode())"
    return jobs.inside("python", "-c", script)


def test_an_audit_by_schedule_finds_the_archive_complete(archived: SparkJobs) -> None:
    archived.apply("audit.yaml", {'schedule: "30 3 * * *"': 'schedule: "* * * * *"'})
    try:
        past = "pastSuccessfulRunNames"
        kind = "scheduledsparkapplications"
        archived.until(lambda: archived.status(kind, "orders-audit").get(past), "an audit has succeeded")
        run = archived.status(kind, "orders-audit")[past][0]
        assert "every queue is complete" in archived.log(f"{run}-driver")
        assert archived.state(run) == "COMPLETED"
    finally:
        archived.delete("scheduledsparkapplication", "orders-audit")


def test_a_batch_counts_every_order_once_with_a_password_that_stands_in_no_plan(jobs: SparkJobs) -> None:
    password = secrets.token_hex(16)
    jobs.orders.client("topic", "create", "paid")
    for tag, amount in (("cash", 1.5), ("card", 2.25), ("cash", 4.0)):
        jobs.orders.client("produce", "paid", json.dumps({"amount": amount}), "--tags", tag)
    made = ("create", "secret", "generic", "revenue-database", "-n", "spark", f"--from-literal=password={password}")
    assert jobs.orders.kubectl(*made).returncode == 0
    with database.reachable(jobs.orders.cluster, "revenue", password, "shop") as conninfo:
        with psycopg.connect(conninfo) as connection:
            connection.execute("SET ROLE revenue")
            connection.execute("CREATE TABLE revenue (payment TEXT PRIMARY KEY, orders BIGINT, amount NUMERIC)")
        for run in ("first", "second"):
            jobs.apply("revenue.yaml", {"--subscribe=purchases": "--subscribe=paid"})
            jobs.until(lambda: jobs.state("orders-revenue") == "COMPLETED", f"the {run} run has completed")
            for asked in ("pods,configmaps,services,sparkapplications", "events"):
                said = jobs.orders.kubectl("get", asked, "-n", "spark", "-o", "yaml").stdout
                assert "orders-revenue" in said and password not in said
            assert password not in jobs.log("orders-revenue-driver")
            jobs.delete("sparkapplication", "orders-revenue")
        with psycopg.connect(conninfo) as connection:
            rows = connection.execute("SELECT payment, orders, amount FROM revenue ORDER BY payment").fetchall()
    assert [(tag, orders, float(amount)) for tag, orders, amount in rows] == [("card", 1, 2.25), ("cash", 2, 5.5)]


@pytest.mark.parametrize("volumes", ["shared", "local"])
def test_a_volume_of_one_node_across_nodes_fails_in_one_sentence_that_says_what_to_do(
    jobs: SparkJobs, volumes: str
) -> None:
    there = {"namespace: spark": f"namespace: {SINGLE}"}
    jobs.apply("rights.yaml", there)
    storage = {key: value.replace("shared", volumes) for key, value in SHARED.items()}
    jobs.apply("volume.yaml", {**there, **storage, "[ReadWriteMany]": "[ReadWriteOnce]"})
    jobs.apply("archive.yaml", {**there, **APART, "{type: Always": "{type: Never"})
    jobs.until(lambda: jobs.state(ARCHIVE, SINGLE) == "FAILED", "the application has failed")
    path = f"/api/v1/namespaces/{SINGLE}/pods/{DRIVER}"
    (status,) = jobs.orders.cluster.admin.get(path)["status"]["containerStatuses"]
    said = status["state"]["terminated"]["message"]
    print(said)
    where = "is on node node2" if volumes == "shared" else "finds no node that can mount it"
    for part in ("claim orders-spark is not ReadWriteMany", where, "driver is on node node1", "ReadWriteMany"):
        assert part in said
    assert said.strip() in jobs.log(DRIVER, SINGLE)
    jobs.delete("sparkapplication", ARCHIVE, SINGLE)
    jobs.delete("persistentvolumeclaim", "orders-spark", SINGLE)


def test_what_a_driver_was_refused_is_nothing_that_it_needs(archived: SparkJobs) -> None:
    refused = {
        (each.verb, each.resource)
        for each in audit.writes(archived.orders.cluster.folder, "system:serviceaccount:spark:orders-spark")
        if each.status == 403
    }
    print(json.dumps(sorted(refused)))
    assert not refused
