"""Makes what tests of Kubernetes need, once per machine: `python -m testkit.kube.prepare GROUP...` (`make kube`).

    control-plane   seven minutes of two busy cores, 0.3 GB       nodes   ten more, 0.7 GB with the base of images
    charts          some three, 0.1 GB
    skaffold        eight, 0.3 GB                              spark   two, 0.1 GB

What is there already costs nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from testkit.kube import binaries, images


def made(name: str, make: Callable[[], object]) -> None:
    """Do it, and say how long it took if it took time."""
    start = time.monotonic()
    make()
    took = time.monotonic() - start
    if took >= 1.0:
        print(f"{name}: ready after {took:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make kube", description="Kubernetes for the tests, made once per machine.")
    parser.add_argument("groups", nargs="+", choices=sorted(binaries.GROUPS))
    parser.add_argument("--tidy", action="store_true", help="remove Go's caches afterwards")
    asked = parser.parse_args()
    for group in asked.groups:
        for name in binaries.GROUPS[group]:
            made(name, lambda name=name: binaries.build(name))  # type: ignore[misc]
    if "nodes" in asked.groups:
        made("the base of images", images.base)
    if asked.tidy:
        binaries.tidy()
    print(f"kube: {', '.join(asked.groups)} ready in {binaries.cache()}", flush=True)


if __name__ == "__main__":
    main()
