"""The project's own images, built by its Dockerfile on the base of `images`: TARGETS, which everybody needs, and SPARK.

buildah works without a daemon and, told so, without pulling anything.  The machine's certificates and its settings of
pip are lent to the build, because what they say is true of this machine alone.  A tar is made again when something that
goes into the image has changed; layers that have not changed come from buildah's own storage beside the tars,
and what many builds have left there goes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import yaml

from testkit.kube import images
from testkit.sources import ROOT, tracked_files

TARGETS = ("broker", "operator")
SPARK = "spark"  # a gigabyte
_COMMON = ("Dockerfile", ".dockerignore", "requirements/build.txt", "requirements/broker.txt", "broker/")
_SPARKS = ("spark/src/", "spark/docker/", "spark/pyproject.toml", "spark/setup.py")
_SOURCES = {
    "broker": _COMMON,
    "operator": (*_COMMON, "requirements/operator.txt", "operator/"),
    SPARK: (*_COMMON, "requirements/sparkrun.txt", *_SPARKS),
}
_NOT_IN_IMAGES = ("broker/docs/", "broker/demo/")
_BUILD_S = 1800.0
_LEFT_BEHIND = 12  # images of earlier builds, some hundred MB each, until they are removed
# Packages that write beside the certificates write into a layer that is thrown away.
_LENT = {"/etc/ssl/certs": "O", "/etc/pip.conf": "ro"}


def name(target: str) -> str:
    """As a pod's template says it."""
    return f"docker.io/gantrymq/{target}:test"


def charted(target: str) -> str:
    """The reference that the chart's own values make: its repository, and the chart's appVersion as the tag."""
    chart = ROOT / "charts" / "gantrymq"
    values = yaml.safe_load((chart / "values.yaml").read_text())["operator"]
    image = values["image" if target == "operator" else "brokerImage"]
    version = yaml.safe_load((chart / "Chart.yaml").read_text())["appVersion"]
    assert not image["tag"] and not image["digest"], image
    return f"{image['repository']}:{version}"


def flags(operator: str, broker: str) -> list[str]:
    """Words for helm that set both images of the operator's chart, given as REPOSITORY:TAG."""
    words = []
    for key, reference in (("image", operator), ("brokerImage", broker)):
        repository, _, tag = reference.rpartition(":")
        words += ["--set", f"operator.{key}.repository={repository}", "--set-string", f"operator.{key}.tag={tag}"]
    return words


def tar(target: str) -> Path:
    """The image, built if what it is made of has changed."""
    wanted = images.folder() / f"{target}-{_digest(target)}.tar"
    if not wanted.exists():
        bud(ROOT, ROOT / "Dockerfile", name(target), wanted, "--target", target)
    return wanted


def bud(context: Path, dockerfile: Path, called: str, wanted: Path, *more: str) -> None:
    """Build an image on our base into the tar `wanted`, NAME-DIGEST.tar; the one that was NAME before goes."""
    stands_on(images.BASE, images.base())
    lent = [flag for path, how in _LENT.items() if Path(path).exists() for flag in ("--volume", f"{path}:{path}:{how}")]
    flags = ["--pull-never", "--layers", "--network=host", "--build-arg", f"BASE={images.BASE}", *lent]
    if len(_buildah("images", "-q", "--filter", "dangling=true").split()) > _LEFT_BEHIND:
        _buildah("rmi", "--prune", "--force")
    _buildah("bud", *flags, *more, "-f", str(dockerfile), "-t", called, str(context))
    for old in images.folder().glob(f"{wanted.name.rpartition('-')[0]}-*.tar"):
        old.unlink()
    unfinished = wanted.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    _buildah("push", called, f"docker-archive:{unfinished}:{called}")
    unfinished.replace(wanted)


def said(target: str, user: str, *words: str) -> str:
    """What a command in a container of the image writes, run as this UID:GID; RuntimeError when it fails."""
    stands_on(name(target), tar(target))
    container = _buildah("from", "--pull-never", name(target)).split()[-1]
    try:
        return _buildah("run", "--user", user, container, "--", *words)
    finally:
        _buildah("rm", container)


def stands_on(called: str, image: Path) -> None:
    """An image in a tar can be built on, under its name."""
    if not _buildah("images", "-q", "--filter", f"reference={called}", "--no-trunc").strip():
        _buildah("pull", f"docker-archive:{image}")


def _digest(target: str) -> str:
    found = hashlib.sha256()
    for path in tracked_files():
        if path.startswith(_SOURCES[target]) and not path.startswith(_NOT_IN_IMAGES):
            found.update(path.encode() + b"\0" + (ROOT / path).read_bytes())
    return found.hexdigest()[:16]


def _buildah(*arguments: str) -> str:
    """One step; its output only when it fails."""
    storage = images.folder() / "storage"
    storage.mkdir(parents=True, exist_ok=True)
    settings = storage / "storage.conf"
    driver = "overlay" if os.geteuid() == 0 else "vfs"
    settings.write_text(f'[storage]\ndriver = "{driver}"\ngraphroot = "{storage}/graph"\nrunroot = "{storage}/run"\n')
    environment = os.environ | {"CONTAINERS_STORAGE_CONF": str(settings), "BUILDAH_ISOLATION": "chroot"}
    program = shutil.which("buildah")
    assert program is not None, "buildah is not installed; apt-get install buildah"
    done = subprocess.run(
        [program, *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=_BUILD_S, check=False,
    )  # fmt: skip
    if done.returncode:
        said = (done.stdout + done.stderr)[-4000:]
        raise RuntimeError(f"buildah {arguments[0]} ended with {done.returncode}:\n{said}")
    return done.stdout
