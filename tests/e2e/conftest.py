"""One control plane for the tests of a process, with what they all need: a namespace, roles, the admission policy.

The binaries are made by `make kube`, or before the tests when CI=true; without them the level skips, which CI does not
let pass.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from testkit.kube import binaries, images
from testkit.kube.cluster import Cluster
from testkit.kube.controlplane import ControlPlane
from testkit.kube.registers import prepare


def require(*names: str) -> None:
    """Skip, saying what is missing and how it is made."""
    with skipped_when_missing():
        for name in names:
            binaries.program(name)


@contextmanager
def skipped_when_missing() -> Iterator[None]:
    """Let a test that needs a program that was not made here skip."""
    try:
        yield
    except binaries.MissingProgramError as error:
        pytest.skip(str(error))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """A test that does not ask by `require` is left out all the same."""
    with skipped_when_missing():
        return (yield)


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    require("etcd", "kube-apiserver", "helm")
    with ControlPlane(tmp_path_factory.mktemp("control-plane")) as running:
        prepare(running)
        yield running


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Four nodes; for root alone, and for machines that have what nodes are made of."""
    require(*binaries.GROUPS["control-plane"], *binaries.GROUPS["nodes"])
    missing = [tool for tool in ("containerd", "runc", "iptables", "conntrack", "ip") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"missing {', '.join(missing)}; make kube")
    if os.geteuid():
        pytest.skip("missing root, who alone may make namespaces and cgroups")
    with Cluster(tmp_path_factory.mktemp("cluster"), tars=[images.base()]) as running:
        yield running
