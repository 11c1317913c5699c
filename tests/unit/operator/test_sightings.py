"""What the failover loop is told of pods: where they are, and which process certainly ended."""

from __future__ import annotations

from typing import Any

import pytest

from gantry_operator.sightings import Addresses, Sightings

RUNNING = {"running": {"startedAt": "2026-11-21T10:00:00Z"}}
ENDED = {"terminated": {"exitCode": 137}}
WAITING = {"waiting": {"reason": "CrashLoopBackOff"}}


def pod(state: dict[str, Any], last: dict[str, Any] | None = None, address: str = "10.244.1.7") -> dict[str, Any]:
    container = {"name": "broker", "state": state, "lastState": last or {}}
    status = {"podIP": address, "containerStatuses": [container]}
    return {"metadata": {"namespace": "messaging", "name": "orders-b0-1"}, "status": status}


@pytest.mark.parametrize(
    ("state", "last", "is_gone"),
    [(RUNNING, {}, False), (ENDED, {}, True), (WAITING, ENDED, True), (WAITING, {}, False), (RUNNING, ENDED, False)],
)
def test_a_process_is_gone_when_the_kubelet_says_so(state: dict[str, Any], last: dict[str, Any], is_gone: bool) -> None:
    sightings = Sightings()
    sightings.saw(pod(state, last), is_deleted=False)
    assert sightings.is_gone("messaging", "orders-b0-1") is is_gone


def test_a_pod_that_was_taken_away_while_it_ran_is_not_known_to_be_gone() -> None:
    sightings = Sightings()
    sightings.saw(pod(RUNNING), is_deleted=True)
    assert not sightings.is_gone("messaging", "orders-b0-1")
    assert sightings.address("messaging", "orders-b0-1") == ""


def test_addresses_are_those_of_the_moment() -> None:
    sightings = Sightings()
    addresses = Addresses(sightings, "messaging", ["orders-b0-0", "orders-b0-1"], 9405)
    assert list(addresses) == ["", ""]
    sightings.saw(pod(RUNNING), is_deleted=False)
    assert list(addresses) == ["", "10.244.1.7:9405"]
    sightings.saw(pod(RUNNING, address="fd00::7"), is_deleted=False)
    assert addresses[1] == "[fd00::7]:9405"
