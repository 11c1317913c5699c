"""A real Prometheus for tests, out of Debian's package, unpacked and never installed: no service is started by it.

The package comes from the Debian registry that the machine has, once, into the cache that the clusters of tests use.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml

from testkit.ports import free_port

_COMMAND_S = 300
_READY_S = 60


def cache() -> Path:
    """Where it is unpacked."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gantrymq-prometheus"


def program(name: str) -> Path:
    """`prometheus` or `promtool`, fetched if it is not there; skips where it cannot be had."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "usr/bin" / name
    with (folder / "lock").open("w") as lock:  # two workers must not unpack over each other
        fcntl.flock(lock, fcntl.LOCK_EX)
        for package in dict.fromkeys((name, "prometheus")):  # Debian 12 has promtool in the latter
            if not path.exists():
                _unpack(package)
    if not path.exists():
        pytest.skip(f"missing {name}; install the Debian package prometheus")
    return path


def _unpack(package: str) -> None:
    folder, fetch = cache(), ["apt-get", "download", package]
    done = subprocess.run(fetch, cwd=folder, capture_output=True, timeout=_COMMAND_S, check=False)
    if done.returncode != 0:  # lists of packages that are too old, or none
        subprocess.run(["apt-get", "update", "-qq"], capture_output=True, timeout=_COMMAND_S, check=False)
        subprocess.run(fetch, cwd=folder, capture_output=True, timeout=_COMMAND_S, check=False)
    for fetched in sorted(folder.glob(f"{package}_*.deb"))[-1:]:
        subprocess.run(["dpkg", "-x", str(fetched), str(folder)], check=True, timeout=_COMMAND_S)


class Prometheus:
    """A server that scrapes; `query` asks it."""

    def __init__(self, port: int) -> None:
        self.port = port

    def query(self, text: str) -> list[dict[str, object]]:
        """The series of an instant query; ValueError with Prometheus' own words for one that is none."""
        form = urllib.parse.urlencode({"query": text})
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/query?{form}", timeout=30) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            raise ValueError(f"{text}: {error.read().decode()}") from error
        result: list[dict[str, object]] = found["data"]["result"]
        return result


@contextmanager
def scraping(
    folder: Path,
    targets: Sequence[str],
    every_s: int = 1,
    job: str = "gantrymq",
    labels: Mapping[str, str] | None = None,
) -> Iterator[Prometheus]:
    """Prometheus over these HOST:PORT, until the block ends; `labels` are given to every series."""
    port = free_port()
    scrape = {"job_name": job, "static_configs": [{"targets": list(targets), "labels": dict(labels or {})}]}
    config = {"global": {"scrape_interval": f"{every_s}s", "scrape_timeout": f"{every_s}s"}, "scrape_configs": [scrape]}
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                str(program("prometheus")),
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'prometheus'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        _wait(port, process, folder / "prometheus.log")
        yield Prometheus(port)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5).close()
            return
        except OSError:
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
    raise AssertionError(f"prometheus is not ready: {log.read_text()}")
