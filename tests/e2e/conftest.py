"""One control plane for the tests of a process, with what they all need: a namespace, roles, the admission policy.

The binaries are made by `make kube`, or before the tests when CI=true; without them the level skips, which CI does not
let pass.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testkit.kube import binaries
from testkit.kube.controlplane import ControlPlane
from testkit.kube.registers import prepare


def require(*names: str) -> None:
    """Skip, saying what is missing and how it is made."""
    try:
        for name in names:
            binaries.program(name)
    except binaries.MissingProgramError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    require("etcd", "kube-apiserver", "helm")
    with ControlPlane(tmp_path_factory.mktemp("control-plane")) as running:
        prepare(running)
        yield running
