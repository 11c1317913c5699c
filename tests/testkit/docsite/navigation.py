"""The order of the documentation site: which document stands in which section.

Each markdown document of the repository has one place here (tests/tidy/test_docsite.py says which one is missing).
A page of decisions needs no line: every file of broker/docs/adr is one.  A title is given where the document's own
heading is too short to be found in a list of pages.
"""

from __future__ import annotations

from dataclasses import dataclass

from testkit.sources import ROOT

HOME = "README.md"
DECISIONS = "broker/docs/adr"
API = "api"  # folder of the pages that are made from docstrings


@dataclass(frozen=True)
class Page:
    """A document, by its path below the root, or a page of the API, by its name; `title` replaces its heading."""

    path: str
    title: str = ""


@dataclass(frozen=True)
class Section:
    """A group of pages with a name of its own in the address, and a sentence about what is found there."""

    name: str
    title: str
    lead: str
    pages: tuple[Page, ...]


SECTIONS = (
    Section(
        "start",
        "Start",
        "The shortest way is on the [home page](index.md). Here: a cluster on your machine, and coming from RocketMQ.",
        (
            Page("broker/docs/local.md", "A cluster on one machine"),
            Page("broker/docs/compatibility.md"),
            Page("broker/README.md", "The distribution gantrymq"),
            Page("README.zh-CN.md", "简体中文"),
        ),
    ),
    Section(
        "guides",
        "Guides",
        "How a program sends, receives, filters, delays and repeats messages.",
        (
            Page("broker/docs/client.md"),
            Page("broker/docs/transactions.md"),
            Page("broker/docs/transaction-queue.md"),
            Page("broker/docs/delay.md"),
            Page("broker/docs/pop.md"),
            Page("broker/docs/filters.md", "Filters: which messages a consumer gets"),
            Page("broker/docs/redelivery.md"),
            Page("broker/docs/pop-waiting.md"),
        ),
    ),
    Section(
        "guarantees",
        "Guarantees",
        "What is promised, in which faults, and where the promise ends.",
        (
            Page("broker/docs/acknowledged.md"),
            Page("broker/docs/failover.md"),
            Page("broker/docs/guarantee.md"),
            Page("broker/docs/patterns.md"),
            Page("broker/examples/orders/README.md"),
            Page("broker/docs/divergence.md", "Differences from RocketMQ"),
        ),
    ),
    Section(
        "operating",
        "Operating",
        "GantryMQ on Kubernetes and on plain machines: installation, settings, metrics, security.",
        (
            Page("operator/README.md", "The distribution gantrymq-operator"),
            Page("operator/docs/operator.md"),
            Page("operator/docs/running.md"),
            Page("operator/docs/proxies.md"),
            Page("operator/docs/queues.md"),
            Page("operator/docs/topics-and-groups.md"),
            Page("charts/gantrymq/README.md", "Chart gantrymq: the operator"),
            Page("charts/gantrymq-cluster/README.md", "Chart gantrymq-cluster: a cluster"),
            Page("broker/docs/nameserver.md"),
            Page("broker/docs/proxy.md"),
            Page("broker/docs/queues.md"),
            Page("broker/docs/topics.md"),
            Page("broker/docs/metrics.md"),
            Page("SECURITY.md"),
        ),
    ),
    Section(
        "spark",
        "Spark",
        "Read topics into Apache Spark and write results back, each batch once.",
        (
            Page("spark/README.md", "The data source"),
            Page("spark/docs/jobs.md", "Finished jobs"),
            Page("tests/bench/RESULTS-spark.md", "Measured: the data source"),
        ),
    ),
    Section(
        "reference",
        "Reference",
        "Every configuration key, every request, and every public name of the Python packages.",
        (
            Page("broker/docs/configuration.md"),
            Page("broker/docs/mns-wire.md"),
            Page("broker/docs/requests.md"),
            Page("api/gantry.client"),
            Page("api/gantry.errors"),
            Page("api/pyspark_gantrymq"),
        ),
    ),
    Section(
        "formats",
        "Formats and protocols",
        "Bytes on the wire and on the disk, precise enough to write another implementation.",
        (
            Page("broker/docs/protocol.md"),
            Page("broker/docs/replication.md", "Replication"),
            Page("broker/docs/record-format.md"),
            Page("broker/docs/store.md"),
            Page("broker/docs/hot-path.md"),
        ),
    ),
    Section(
        "project",
        "Project",
        "How the code is built, written, tested and measured; what changed.",
        (
            Page("CONTRIBUTING.md"),
            Page("tests/README.md", "Tests: which level finds what"),
            Page("ARCHITECTURE.md", "Architecture"),
            Page("STYLE.md", "Style"),
            Page("CHANGELOG.md"),
            Page("tests/bench/RESULTS.md", "Measured: the broker"),
            Page("tests/FULL_RUN.md", "The last full run of the tests"),
        ),
    ),
    Section(
        "decisions",
        "Decisions",
        "Why it is as it is: one page for each decision, with what was measured and what else was looked at.",
        tuple(Page(str(path.relative_to(ROOT))) for path in sorted((ROOT / DECISIONS).glob("*.md"))),
    ),
)

# The public names of gantry.client in the order in which a reader needs them; together they are its __all__.
CLIENT = {
    "Messages": ("Message", "StoredMessage", "ReceivedMessage", "PoppedMessage", "MessageQueue", "SendResult"),
    "Producers": ("Producer", "ProducerSettings", "BlockingProducer"),
    "Transactions": ("TransactionProducer", "Transaction", "TransactionSettings", "Outcome", "Rollback"),
    "Consumers": ("Consumer", "OrderlyConsumer", "ConsumerSettings", "OrderSettings", "StartFrom", "Sql"),
    "Single messages": ("SimpleConsumer", "BlockingSimpleConsumer"),
    "Pulling": ("PullConsumer", "Puller", "BlockingPuller"),
    "Administration": ("Admin",),
}
SPARK = ("DefaultSource", "GantryMQOffsetListener")


def documents() -> list[str]:
    """Return the paths of all documents of the site, the home page first."""
    pages = [page.path for section in SECTIONS for page in section.pages]
    return [HOME, *(path for path in pages if not path.startswith(f"{API}/"))]
