from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gantry.local import processes
from testkit.patience import HANG_S

UID = f"unit{os.getpid()}"
WAITS = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    environment = processes.marked(UID, "broker-a-0")
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as popen:
        assert popen.stdout is not None
        popen.stdout.readline()
        yield popen
        popen.kill()


def test_a_process_of_the_cluster_is_found_by_its_mark(child: subprocess.Popen[bytes]) -> None:
    assert processes.find(UID) == {"broker-a-0": child.pid}
    assert processes.find(UID[:-1]) == {}, "another cluster's mark is not ours"


def test_a_signal_reaches_the_process_of_that_name_and_no_other(child: subprocess.Popen[bytes]) -> None:
    assert not processes.send(UID, "broker-a-1", signal.SIGKILL)
    assert processes.send(UID, "broker-a-0", signal.SIGKILL)
    assert child.wait(HANG_S) == -signal.SIGKILL
    assert processes.find(UID) == {} and not processes.send(UID, "broker-a-0", signal.SIGKILL)


def test_a_process_that_stands_still_is_told_from_one_that_runs(child: subprocess.Popen[bytes]) -> None:
    assert not processes.is_stopped(child.pid)
    os.kill(child.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    assert processes.is_stopped(child.pid)


def test_a_known_process_is_not_mistaken_for_a_later_one_with_its_number(child: subprocess.Popen[bytes]) -> None:
    found = processes.known(child.pid)
    assert found is not None and found.is_alive
    assert processes.parse_known(str(found)) == found
    later = found._replace(began="1")
    assert not later.is_alive and not processes.send_known(later, signal.SIGKILL)
    assert processes.send_known(found, signal.SIGKILL)
    child.wait(HANG_S)
    assert not found.is_alive


@pytest.mark.parametrize("text", ["", "12", "x/1/b", "12//b"])
def test_a_text_that_names_no_process_is_none(text: str) -> None:
    assert processes.parse_known(text) is None


def test_a_configuration_of_brokers_by_environment_is_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANTRY_STORE_ROOT", "/somewhere")
    monkeypatch.setenv("GANTRY_PURE", "1")
    environment = processes.marked(UID, "x")
    assert "GANTRY_STORE_ROOT" not in environment and environment["GANTRY_PURE"] == "1"


def test_a_process_that_ended_is_gone_and_one_that_came_again_is_not(child: subprocess.Popen[bytes]) -> None:
    gone = processes.Gone(UID, ["broker-a-0", "broker-a-1"])
    assert gone.ordinals() == {1}
    child.kill()
    child.wait(HANG_S)
    assert gone.ordinals() == {0, 1}
    environment = processes.marked(UID, "broker-a-0")
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as again:
        assert again.stdout is not None
        again.stdout.readline()
        assert gone.ordinals() == {1}
        again.kill()
