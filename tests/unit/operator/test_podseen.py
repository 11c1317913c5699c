"""A pod as a value: what of it works, and what is in trouble."""

from __future__ import annotations

from typing import Any

import pytest

from gantry_operator.podseen import Pod, pod_seen

LOOP = {"waiting": {"reason": "CrashLoopBackOff"}}
PULL = {"waiting": {"reason": "ImagePullBackOff"}}
RUNS = {"running": {}}


def pod(ready: str, containers: dict[str, Any], init: dict[str, Any] | None = None, why: str = "") -> Pod:
    about = {"name": "orders-b0-0", "uid": "u", "labels": {"gantrymq.io/component": "broker"}}

    def statuses(found: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"name": name, "state": state, "ready": state == RUNS} for name, state in found.items()]

    status = {"conditions": [{"type": "Ready", "status": ready, "reason": why}],
              "containerStatuses": statuses(containers), "initContainerStatuses": statuses(init or {})}  # fmt: skip
    spec = {"containers": [{"name": "proxy", "image": "proxy:7"}, {"name": "broker", "image": "image:1"}]}
    return pod_seen({"metadata": about, "spec": spec, "status": status})


@pytest.mark.parametrize(
    ("seen", "works", "trouble", "container"),
    [
        (pod("True", {"proxy": RUNS, "broker": RUNS}), True, "", ""),
        (pod("False", {"proxy": LOOP, "broker": RUNS}, why="ContainersNotReady"), True, "crash", "proxy"),
        (pod("False", {"proxy": PULL, "broker": LOOP}, why="ContainersNotReady"), False, "crash", ""),
        (pod("False", {"proxy": RUNS, "broker": LOOP}, why="ContainersNotReady"), False, "crash", ""),
        (pod("False", {"broker": {}}, {"copy": LOOP}, "ContainersNotInitialized"), False, "crash", "copy"),
        (pod("False", {"proxy": RUNS, "broker": RUNS}, why="NodeNotReady"), False, "", ""),
    ],
)
def test_a_server_works_beside_a_container_that_does_not_unless_its_node_is_lost(
    seen: Pod, works: bool, trouble: str, container: str
) -> None:
    assert (seen.works, seen.trouble, seen.container, seen.image) == (works, trouble, container, "image:1")
