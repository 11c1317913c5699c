"""What holds for every test: levels by folder, asyncio in debug mode, no time limits, no skip unseen by CI.

A test's level is the folder it lies in.  A test that cannot run for want of a tool skips with
`pytest.skip("missing ...")`, which helps on a laptop; with CI=true the same skip is a failure, because
CI is meant to have everything.

An example of Hypothesis has no time limit here: others use the machine too, and under sanitizers everything is slow.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from testkit.leftopen import left_open, watched
from testkit.leftout import lines_of_left_out
from testkit.runfolder import RunFolder, remove_old

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

HERE = Path(__file__).parent
# Their servers cost more to start than most of their tests: a control plane, JVMs.  The largest groups are begun first.
LEVELS_OF_ONE_WORKER = ("e2e", "interop")
RUN_FOLDER, HAS_FAILED = pytest.StashKey[RunFolder](), pytest.StashKey[bool]()
ON_CI = os.environ.get("CI") == "true"


class ClosingLoop(asyncio.SelectorEventLoop):
    """A loop that ends as a process does: what a server accepted in the last turns is closed with it.

    Else Python complains of such a connection when it finds it, at the expense of whatever test runs by then.  What a
    client of ours leaves open is complained of all the same.

    A connection that is accepted in the turn in which its server closes is refused here.  CPython 3.11 fails an assert
    inside the transport then, and what is left of it complains in another test (python/cpython#109564).
    """

    def __init__(self) -> None:
        super().__init__()
        self._accepted: list[asyncio.Transport] = []

    def _make_socket_transport(self, sock, *arguments, server=None, **more):  # type: ignore[no-untyped-def]
        if server is not None and server._sockets is None:
            sock.close()
            raise ConnectionAbortedError("the server closed before it took this connection")
        made = super()._make_socket_transport(sock, *arguments, server=server, **more)
        if server is not None:
            self._accepted = [*(one for one in self._accepted if one._sock is not None), made]
        return made

    def close(self) -> None:
        for transport in self._accepted:
            if transport._sock is not None:
                transport._sock.close()
                transport._sock = None
        super().close()


def debugging_loop() -> asyncio.AbstractEventLoop:
    """Make a loop that watches for coroutines never awaited and wrong threads."""
    loop = ClosingLoop()
    loop.set_debug(True)
    return loop


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and config.option.basetemp is None:
        parent = Path(tempfile.gettempdir())
        remove_old(parent)
        config.stash[RUN_FOLDER] = folder = RunFolder(parent)
        config.option.basetemp = str(folder.tests)
    # In the place of a policy, which Python 3.14 deprecates: both names, asyncio.run looks up the second.
    asyncio.new_event_loop = asyncio.events.new_event_loop = debugging_loop
    untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("untimed", parent=untimed)
    settings.load_profile("untimed")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Note whether the folder of this run is worth keeping."""
    session.config.stash[HAS_FAILED] = exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out; pytest's own summary stays the last line."""
    skipped = terminalreporter.stats.get("skipped", [])
    for line in lines_of_left_out(str(report.longrepr[2]) for report in skipped if isinstance(report.longrepr, tuple)):
        terminalreporter.write_line(line)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the folder of this run, or keep it when a test failed."""
    folder = config.stash.get(RUN_FOLDER, None)
    if folder is not None:
        folder.end(config.stash.get(HAS_FAILED, True))


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function on an event loop of its own, which `debugging_loop` makes."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True


@pytest.fixture(autouse=True)
def databases_are_closed() -> Iterator[None]:
    """Fail a test that leaves a SQLite connection open; fixtures of modules and sessions are not watched."""
    with watched() as connections:
        yield
    assert not left_open(connections), "a SQLite connection that the test opened was never closed"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        level = item.path.relative_to(HERE).parts[0]
        item.add_marker(getattr(pytest.mark, level))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Keep a file with one worker, and each of LEVELS_OF_ONE_WORKER; the largest groups begin first."""
    from xdist.scheduler import LoadScopeScheduling  # the environment of Spark's tests has none

    class LevelsAndFiles(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            level = Path(path).parts[1]
            return level if level in LEVELS_OF_ONE_WORKER else path

    return LevelsAndFiles(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    report = yield
    return _strict(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    report = yield
    return _strict(report)


def _strict(report):  # type: ignore[no-untyped-def]
    if ON_CI and report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and CI must have what is missing: {report.longrepr}"
    return report
