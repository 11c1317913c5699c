"""A real broker, a real Spark: what every test of this level starts from.

These tests run in the environment that `make spark-env` makes, which has PySpark and not the tools; where there is no
PySpark they are not collected (`make test` runs them besides the others).
"""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from _pytest.runner import runtestprotocol

from testkit.frameproxy import HOST, FrameProxy
from testkit.process import GantryProcess
from testkit.sources import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from interop.servers import Apache
    from testkit.postgres import Postgres

if importlib.util.find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]

# The broker runs where its packages are.
SERVER_PYTHON = str(ROOT / ".venv" / "bin" / "python")


# Spark gives each of its Python processes ten seconds to start, which cannot be set; a busy machine needs more.  The
# query ends with this, and anyone who runs it starts it again.
TOO_SLOW = "Python worker failed to connect back"
STARTS_MAX = 4


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """A test in which this machine was too slow for Spark begins again, in a folder and with a topic of its own."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for start in range(1, STARTS_MAX):
        if not any(one.failed and TOO_SLOW in str(one.longrepr) for one in reports):
            break
        item.user_properties.append(("too slow a machine for Spark, starts", start + 1))
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One JVM for all tests of a process: two tasks at a time, each tried three times before a query fails."""
    from testkit.sparksession import start

    session = start(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GantryProcess]:
    """A broker for tests that only send and read; each uses topics of its own."""
    with GantryProcess(tmp_path_factory.mktemp("broker") / "data", python=SERVER_PYTHON) as process:
        yield process


@pytest.fixture
def nameserver(shared_broker: GantryProcess) -> str:
    """Where the shared broker's name server listens."""
    host, port = shared_broker.addresses["nameserver"]
    return f"{host}:{port}"


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[tuple[str, FrameProxy]]:
    """A broker of this test's own behind a proxy that clients are sent to, and its name server."""
    config = {"network.advertise": HOST, "transactions.check_interval_s": "0.5"}
    with GantryProcess(tmp_path / "data", config, python=SERVER_PYTHON) as process, FrameProxy(process.broker) as made:
        yield "{}:{}".format(*process.addresses["nameserver"]), made


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """An empty server; each test makes databases of its own."""
    from testkit.postgres import running_postgres

    with running_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache]:
    """Apache's own name server and broker, RocketMQ 5 from Maven Central."""
    from interop.servers import Apache

    home = tmp_path_factory.mktemp("apache")
    made = Apache("5.x", home, home / "data", {"timerWheelEnable": "true"})
    try:
        made.start()
        yield made
    finally:
        made.close()
        with contextlib.suppress(OSError):
            shutil.rmtree(home)


@pytest.fixture
def topic(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A name that no other test uses."""
    return f"t-{request.node.name.partition('[')[0][:60]}-{abs(hash(tmp_path)) % 10**8}"
