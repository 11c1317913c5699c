"""The images that the Dockerfile builds: what is in them, as files and as settings, beyond their base."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from testkit.kube import images, projectimages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

# Beyond the base, unpacked.
MEGABYTES_MAX = {"broker": 100, "operator": 250, "spark": 950}
ENTRYPOINTS = {"broker": "gantry", "operator": "gantry-operator", "spark": "/opt/entrypoint"}
USERS = {"broker": 10001, "operator": 10001, "spark": 185}  # Spark's own number, which its users' manifests have
ASSIGNED = "1000650000:0"  # as OpenShift assigns one to a namespace
# Of each image a command, and a line of what it then says.  Hadoop ends a JVM whose user is "?".
RUNS = {
    "broker": ("gantry --help", "usage: gantry"),
    "operator": ("gantry-operator --help", "usage: gantry-operator"),
    "spark": ("/opt/entrypoint java -XshowSettings:properties -version 2>&1", "user.name = assigned"),
}
COMPILERS = {"gcc", "cc", "g++", "c++", "cpp", "cc1", "as", "ld", "tcc", "clang", "make"}


@pytest.fixture(autouse=True)
def builder() -> None:
    if shutil.which("buildah") is None:
        pytest.skip("missing buildah; make kube")


@pytest.fixture(params=(*projectimages.TARGETS, projectimages.SPARK))
def target(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def settings(tar: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    """Of an image in a tar: its settings, the digests of its unpacked layers, and the members that hold them."""
    with tarfile.open(tar) as outer:
        (manifest,) = json.load(_member(outer, "manifest.json"))
        found = json.load(_member(outer, manifest["Config"]))
        return found["config"], found["rootfs"]["diff_ids"], manifest["Layers"]


def _member(outer: tarfile.TarFile, name: str) -> Any:
    file = outer.extractfile(name)
    assert file is not None
    return file


def added(target: str) -> Iterator[tarfile.TarInfo]:
    """Every file of the layers that the base does not have."""
    tar = projectimages.tar(target)
    _, digests, members = settings(tar)
    _, base, _ = settings(images.base())
    assert digests[: len(base)] == base, "the image stands on the base that it was given"
    with tarfile.open(tar) as outer:
        for member in members[len(base) :]:
            with tarfile.open(fileobj=_member(outer, member)) as layer:
                yield from layer


def test_an_image_is_small_beyond_its_base(target: str) -> None:
    megabytes = sum(each.size for each in added(target)) / 1e6
    print(f"{target}: {megabytes:.0f} MB beyond the base")
    assert megabytes <= MEGABYTES_MAX[target]


def test_an_image_has_no_compiler_and_no_installer(target: str) -> None:
    paths = [PurePosixPath(each.name) for each in added(target)]
    assert not {path.name for path in paths} & (COMPILERS | {"pip", "pip3"})
    ours = [path for path in paths if "gantry" in path.parts]
    assert ours and not [path for path in ours if path.suffix in (".pyx", ".c", ".h", ".o")]


def test_an_image_runs_as_nobody_in_particular_and_owns_nothing(target: str) -> None:
    found, _, _ = settings(projectimages.tar(target))
    user = USERS[target]
    assert found["User"] == f"{user}:{user}"
    assert found["Entrypoint"] == [ENTRYPOINTS[target]]
    files = list(added(target))
    assert not [each.name for each in files if each.uid == user or (each.mode & 0o6002 and each.isfile())]


def test_an_image_runs_with_a_user_id_that_has_no_name(target: str) -> None:
    command, line = RUNS[target]
    assert line in projectimages.said(target, ASSIGNED, "sh", "-c", command)


def test_the_broker_image_has_its_compiled_core_and_the_operators_programs_are_where_charts_call_them() -> None:
    broker = {each.name for each in added("broker")}
    assert any("gantry/leaves/_fast" in name and name.endswith(".so") for name in broker)
    operator = {PurePosixPath(each.name).name for each in added("operator")}
    assert {"gantry-operator", "gantry-operator-definitions", "gantry-operator-leave"} <= operator
