"""The image of other people's clients, and how one of them is started in a pod: nothing of it is ours but the drivers.

Java's clients and the C++ library come from where `interop/prepare.py` has them from, pinned in the same files.  The
image is made once for what goes into it, like the project's own (`projectimages`).
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from interop import prepare
from testkit.kube import images
from testkit.kube.projectimages import bud

NAME = "docker.io/local/clients:1"
DOCKERFILE = Path(__file__).with_name("clients.dockerfile")
PINS, CPP_DRIVER = prepare.HERE / "cpp" / "v218.txt", prepare.HERE / "cpp" / "driver.py"
_HEAP = ("-Xmx192m", *prepare.TEST_FLAGS)


def tar() -> Path:
    """The image, built if what it is made of has changed; MissingToolError without Java and Maven."""
    jars = {version: prepare.java(version).split(":") for version in prepare.JAVA_VERSIONS}
    names = sorted(f"{version}/{Path(jar).name}" for version, paths in jars.items() for jar in paths)
    drivers = {source for version in prepare.JAVA_VERSIONS for source in prepare.java_sources(version)}
    parts = [DOCKERFILE, PINS, CPP_DRIVER, *sorted(drivers)]
    digest = hashlib.sha256("\0".join(names).encode() + b"".join(each.read_bytes() for each in parts)).hexdigest()[:16]
    wanted = images.folder() / f"clients-{digest}.tar"
    if not wanted.exists():
        with tempfile.TemporaryDirectory(prefix="gantrymq-clients-") as name:
            folder = Path(name)
            shutil.copy(PINS, folder)
            shutil.copy(CPP_DRIVER, folder)
            for version, paths in jars.items():
                _lay(folder / "java" / version, paths)
            bud(folder, DOCKERFILE, NAME, wanted)
    return wanted


def command(client: str, name_server: str) -> list[str]:
    """Of a driver, in the image; clients are called as in `interop.clients`."""
    if client == "cpp-2.1.8":
        return ["/opt/cpp/bin/python", "/opt/cpp/driver.py", name_server]
    place = f"/opt/java/{client.removeprefix('java-')}"
    flags = [*_HEAP, *prepare.JAVA_FLAGS, "-Duser.home=/tmp", "-Drocketmq.home.dir=/tmp"]
    return ["java", *flags, "-cp", f"{place}/drivers:{place}/*", "Driver", name_server]


def _lay(folder: Path, paths: list[str]) -> None:
    drivers, *jars = paths
    shutil.copytree(drivers, folder / "drivers")
    for jar in jars:
        shutil.copy(jar, folder)
