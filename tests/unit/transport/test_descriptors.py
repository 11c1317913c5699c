"""How many files may be open, and which of them connections may take."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gantry.transport import descriptors
from testkit.patience import HANG_S


@pytest.fixture
def soft() -> Iterator[int]:
    """A soft limit below the hard one, for this test."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = min(before[0], 1024)
    resource.setrlimit(resource.RLIMIT_NOFILE, (low, before[1]))
    try:
        yield low
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_becomes_the_hard_one(soft: int) -> None:
    assert descriptors.limit() == soft
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert descriptors.raise_limit() == descriptors.limit() == min(hard, 1 << 20) if hard > 0 else 1 << 20


def test_connections_may_have_the_lower_half_of_the_descriptors(soft: int) -> None:
    assert descriptors.reserve() == soft // 2
    assert not descriptors.is_reserved(soft - soft // 2 - 1, soft)
    assert descriptors.is_reserved(soft - soft // 2, soft // 16)


def test_files_in_the_lower_half_leave_a_server_some_connections(soft: int) -> None:
    assert not descriptors.is_reserved(soft - 1, soft // 16 - 1)


def test_what_listeners_accept_before_they_can_refuse_fits_into_the_reserve(soft: int) -> None:
    three_ports, three_doors = 3 * descriptors.backlog(1 << 20), 3 * 2 * descriptors.share(1 << 20)
    assert three_ports < descriptors.reserve()
    assert three_doors < descriptors.reserve() // 2
    assert descriptors.backlog(8) == descriptors.share(8) == 8


def test_a_limit_that_is_too_low_says_what_to_do() -> None:
    code = "from gantry.cli.main import main; raise SystemExit(main(['nameserver', '--nameserver-port', '0']))"
    command = ["sh", "-c", 'ulimit -n 200; exec "$0" "$@"', sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 2
    assert "the limit of open files is 200, expected at least 256" in done.stderr
    assert "ulimit -Hn 65536" in done.stderr
