"""Images for the nodes of a test cluster, made without a registry: tars as `docker save` writes them.

    pause     the one program of testkit/kube/pause.c
    base      Debian with Python, by debootstrap; a minute, once per machine
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
from pathlib import Path

from testkit import debian
from testkit.kube import binaries

PAUSE = "docker.io/local/pause:1"
BASE = "docker.io/local/base:1"
_SUITE = "bookworm"
_PACKAGES = ("ca-certificates", "python3", "python3-venv")


def folder() -> Path:
    """Where the tars lie, beside the programs."""
    return binaries.cache() / "images"


def pause() -> Path:
    """The sandbox of every pod."""
    program = binaries.program("pause")
    digest = hashlib.sha256(program.read_bytes()).hexdigest()[:12]
    wanted = folder() / f"pause-{digest}.tar"
    if not wanted.exists():
        files = io.BytesIO()
        with tarfile.open(fileobj=files, mode="w") as layer:
            layer.add(program, "pause")
        _write(wanted, PAUSE, files.getvalue(), ["/pause"])
    return wanted


def base() -> Path:
    """What images of the project are built on in tests."""
    wanted = folder() / f"base-{_SUITE}.tar"
    if not wanted.exists():
        wanted.parent.mkdir(parents=True, exist_ok=True)
        root = wanted.with_suffix(".root")
        debian.make_root(_SUITE, _PACKAGES, root)
        for useless in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale", "usr/share/man"):
            shutil.rmtree(root / useless, ignore_errors=True)
        files = wanted.with_suffix(".layer")
        with tarfile.open(files, "w") as layer:
            layer.add(root, ".")
        _write(wanted, BASE, files.read_bytes(), [])
        shutil.rmtree(root)
        files.unlink()
    return wanted


def _write(to: Path, name: str, layer: bytes, entrypoint: list[str]) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    settings = {"Entrypoint": entrypoint or None, "Env": [f"PATH={path}"]}
    about = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine),
        "os": "linux",
        "config": settings,
        "history": [{"created_by": "tests/testkit/kube/images.py"}],  # one per layer, or nobody can build on it
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    unfinished = to.with_suffix(".unfinished")
    with tarfile.open(unfinished, "w") as image:
        texts = {"config.json": json.dumps(about).encode(), "manifest.json": json.dumps(manifest).encode()}
        for name_inside, content in {"layer.tar": layer, **texts}.items():
            entry = tarfile.TarInfo(name_inside)
            entry.size = len(content)
            image.addfile(entry, io.BytesIO(content))
    unfinished.replace(to)
