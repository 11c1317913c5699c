"""One server for the whole level, and drivers that start when a test first asks for them.

GANTRY_INTEROP_SERVER=apache-4.9.7 or apache-5.x puts Apache's broker in GantryMQ's place: a driver or an expectation
that fails there is wrong.
"""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from interop import grpcclients, mnsclients, prepare, proxies, servers
from interop.clients import CLIENTS, Client, Running
from interop.sdkplay import Play

NUMBERS = itertools.count()


def pytest_make_parametrize_id(val: object) -> str | None:
    return val.name if isinstance(val, Client) else None


def require(kind: str) -> None:
    """Skip with the missing program's name; under CI a program that is meant to be there is a failure."""
    with left_out_when_missing():
        prepare.require(kind)


@contextmanager
def left_out_when_missing() -> Iterator[None]:
    """Let a test that needs a program that is not here skip, and fail under CI."""
    try:
        yield
    except prepare.MissingToolError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    """A test that does not ask by `require` is left out all the same."""
    with left_out_when_missing():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """The same for a test that starts its programs itself."""
    with left_out_when_missing():
        return (yield)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "only_on_gantry: Apache's broker does not refuse what this version refuses")
    config.addinivalue_line("markers", "not_in_the_old_pair: not between Apache's old broker and its new client")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what an Apache broker in GantryMQ's place is not meant to run.

    Not skipped: a skip says that something is missing here, and under CI that is a failure.
    """
    left_out = [item for item in items if is_left_out(item, servers.CHOSEN)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def is_left_out(item: pytest.Item, chosen: str) -> bool:
    if item.get_closest_marker("only_on_gantry"):
        return chosen != "gantry"
    if item.get_closest_marker("not_in_the_old_pair") and isinstance(item, pytest.Function):
        params = item.callspec.params
        return chosen == "apache-4.9.7" and "java-5.x" in (params.get("java"), params.get("java_driver"))
    return False


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    if servers.CHOSEN != "gantry":
        require("java")
    home = tmp_path_factory.mktemp("server")
    made = servers.make(servers.CHOSEN, home, home / "data")
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="session")
def every_tool() -> None:
    for kind in prepare.NEEDS:
        require(kind)


@pytest.fixture(scope="session")
def running(server: servers.Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    drivers = Running(tmp_path_factory.mktemp("clients"), server.name_server)
    yield drivers
    drivers.end()


@pytest.fixture(scope="session")
def proxy(server: servers.Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[proxies.Proxy]:
    with proxies.serving(tmp_path_factory.mktemp("proxy"), server.name_server) as made:
        yield made


@pytest.fixture(scope="session")
def sdks(proxy: proxies.Proxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Drivers of RocketMQ 5's clients, all at one proxy."""
    drivers = Running(tmp_path_factory.mktemp("sdks"), proxy.endpoints)
    yield drivers
    drivers.end()


@pytest.fixture(scope="session")
def queues(server: servers.Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[mnsclients.GantryQueues]:
    made = mnsclients.GantryQueues(tmp_path_factory.mktemp("mns") / "server", server.name_server)
    made.start()
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="session")
def mns(queues: mnsclients.GantryQueues, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    made = Running(tmp_path_factory.mktemp("mnsclients"), queues.url)
    yield made
    made.end()


@pytest.fixture
def restarts(sdks: Running, proxy: proxies.Proxy) -> Iterator[None]:
    """For a test that ends the proxy: it has drivers of its own, and the proxy runs again afterwards.

    A client that lost its proxy may be of no use to the next test: gRPC waits up to two minutes between two attempts.
    """
    sdks.end()
    yield
    sdks.end()
    proxy.start()


@pytest.fixture(scope="session")
def every_sdk() -> None:
    for language in grpcclients.SDKS:
        require(grpcclients.TOOLS[language])


@pytest.fixture(params=grpcclients.SDKS, scope="module")
def sdk(request: pytest.FixtureRequest) -> Client:
    require(grpcclients.TOOLS[request.param])
    return grpcclients.sdk(request.param)


@pytest.fixture(params=CLIENTS.values(), scope="module")
def client(request: pytest.FixtureRequest) -> Client:
    chosen: Client = request.param
    require(chosen.name.split("-")[0].replace("ali", "node"))
    return chosen


@pytest.fixture(params=[pytest.param("java-4.9.7", marks=pytest.mark.slow), "java-5.x"], scope="module")
def java(request: pytest.FixtureRequest) -> Client:
    require("java")
    return CLIENTS[request.param]


@pytest.fixture
def plays(every_sdk: None, sdks: Running, server: servers.Server, name: str) -> list[Play]:
    """Each of RocketMQ 5's clients with a topic and a group."""
    return [Play(sdks.driver(grpcclients.sdk(sdk)), server, f"{name}{sdk}") for sdk in grpcclients.SDKS]


@pytest.fixture
def name() -> str:
    """A word no other test of this run uses: for topics and groups."""
    return f"T{os.getpid()}x{next(NUMBERS)}"


@pytest.fixture(autouse=True)
def fresh_processes(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    for drivers in {"running", "sdks"} & set(request.fixturenames):
        running: Running = request.getfixturevalue(drivers)
        running.end_test()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"
