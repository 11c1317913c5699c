"""An earlier version of the project, for upgrades: a named commit, its images and chart under a version of their own.

The commit is moved forward by hand, to the last one of a version that users run.
"""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

from testkit.archives import unpack
from testkit.kube import images, projectimages
from testkit.sources import ROOT

COMMIT = "b5edb4fbf52d078b77debfdae98f0802e0e4257a"
VERSION = "0.0.9"
_STEP_S = 120.0


def is_known() -> bool:
    """Whether this clone has the commit; a shallow one has not."""
    done = subprocess.run(["git", "cat-file", "-e", f"{COMMIT}^{{commit}}"], cwd=ROOT, check=False, capture_output=True)
    return done.returncode == 0


def checked_out(folder: Path) -> Path:
    """Its tree below this folder; the chart is of VERSION, and so are the images that its values name."""
    archive, tree = folder / "previous.tar", folder / "previous"
    subprocess.run(["git", "archive", "-o", str(archive), COMMIT], cwd=ROOT, check=True, timeout=_STEP_S)
    with tarfile.open(archive) as files:
        unpack(files, tree)
    chart = tree / "charts" / "gantrymq"
    values = (chart / "values.yaml").read_text()
    for target in projectimages.TARGETS:
        assert f"docker.io/gantrymq/{target}:0.1.0" in values, values
        values = values.replace(f"docker.io/gantrymq/{target}:0.1.0", name(target))
    (chart / "values.yaml").write_text(values)
    about = (chart / "Chart.yaml").read_text()
    (chart / "Chart.yaml").write_text(about.replace("ersion: 0.1.0", f"ersion: {VERSION}"))
    return tree


def name(target: str) -> str:
    """Of an image."""
    return f"docker.io/gantrymq/{target}:{VERSION}"


def tar(target: str, tree: Path) -> Path:
    """An image of that tree, built once."""
    wanted = images.folder() / f"previous-{target}-{COMMIT[:12]}.tar"
    if not wanted.exists():
        projectimages.bud(tree, tree / "Dockerfile", name(target), wanted, "--target", target)
    return wanted
