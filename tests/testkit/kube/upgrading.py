"""An upgrade under load and back, and this tree as if it were an earlier version: a tag, a chart and kinds of its own.

Per commit the earlier version is this tree with another tag, without a field and a rule of its kinds (`olderkinds`);
`previous` has a commit of the past, for `make test-full`.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import yaml

from testkit.kube import olderkinds, projectimages, shell
from testkit.kube.cluster import Cluster, condition
from testkit.kube.orders import BROKERCLUSTER, CHART, SYSTEM, Orders
from testkit.sources import ROOT

VERSION = "0.0.8"
OPERATORS = ROOT / "operator" / "docs" / "operator.md"
KIND = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/brokerclusters.gantrymq.io"
_LOAD_S = 1500  # at most; it is stopped when what it was meant to see is over


def line() -> str:
    """How the operator's document says that a release is upgraded."""
    (found,) = [each for each in OPERATORS.read_text().splitlines() if each.startswith("    helm upgrade gantrymq ")]
    return found.strip()


def chart(folder: Path, version: str = VERSION) -> Path:
    """This tree's chart as one of that version, with older kinds."""
    shutil.copytree(CHART, folder)
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    (folder / "Chart.yaml").write_text(yaml.safe_dump(about | {"version": version, "appVersion": version}))
    (folder / "crds" / "gantrymq.io_brokerclusters.yaml").write_text(yaml.safe_dump(olderkinds.definition()))
    return folder


def load(cluster: Cluster) -> None:
    """The images of this tree, tagged as its chart and as the earlier one name them."""
    shell.load(cluster)
    for target in projectimages.TARGETS:
        shell.tag(cluster, target, name(target))


def name(target: str, version: str = VERSION) -> str:
    """Of an image."""
    return f"docker.io/gantrymq/{target}:{version}"


def images(orders: Orders) -> set[str]:
    """Of brokers' pods."""
    return {each["spec"]["containers"][0]["image"] for each in orders.members()}


def up_and_back(orders: Orders, earlier: str, book: str) -> None:
    """By the documented line, and by helm's own rollback; nothing that was acknowledged is lost.

    The cluster is ready with brokers of the image `earlier`, installed as the release's first revision, and has the
    topic `tea`; `book` is the file of the producer's ledger.
    """
    assert images(orders) == {earlier}
    with orders.producer(book, "u", _LOAD_S) as producer:
        orders.until_producing(book)
        before = orders.uids()
        done = shell.run(orders.cluster, line())
        assert done.returncode == 0, done.stdout + done.stderr + orders.trouble()
        _rolled(orders, book, projectimages.charted("broker"), before)
        assert condition(orders.cluster.admin.get(BROKERCLUSTER), "ImageUpToDate") == "True"
        assert orders.cluster.admin.get(KIND)["metadata"]["generation"] > 1, "the Job brought the new kinds"
        before = orders.uids()
        orders.cluster.helm("rollback", "gantrymq", "1", "--namespace", SYSTEM)
        _rolled(orders, book, earlier, before)
        orders.stop_producers()
        producer.wait(60)
    orders.report(book, "after")


def _rolled(orders: Orders, book: str, image: str, before: set[str]) -> None:
    """All members run this image and are in sync; prints the longest pause of the ledger so far."""
    orders.until_rolled(before)
    assert images(orders) == {image}
    known = len(orders.ledger(book))
    orders.until(lambda: len(orders.ledger(book)) > known, f"brokers of {image} acknowledge")
    times = sorted(orders.ledger(book).values())
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    print(f"{image}: {len(times)} acknowledged, longest pause so far {max(pauses) / 1000:.1f} s")
