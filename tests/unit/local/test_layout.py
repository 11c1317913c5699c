from __future__ import annotations

from dataclasses import replace

import pytest

from gantry.errors import ConfigError
from gantry.local.layout import (
    GROUPS_MAX,
    REPLICAS_MAX,
    Layout,
    Links,
    Ports,
    Who,
    coordinator_config,
    member_config,
    who_is,
)

LARGEST = Layout("0123456789abcdef", GROUPS_MAX, REPLICAS_MAX, "durable", "fast", Links.PROXY, 7, Ports(), {})
SMALL = replace(LARGEST, groups=2, replicas=3)


@pytest.mark.parametrize("links", list(Links))
def test_nobody_listens_where_somebody_else_does(links: Links) -> None:
    layout = replace(LARGEST, links=links)
    found = list(layout.listeners())
    assert len(found) == len(set(found))
    assert all(0 < int(part) < 255 for host, _ in found for part in host.split("."))
    assert len({layout.address(who) for who in layout.members()}) == GROUPS_MAX * REPLICAS_MAX


def test_a_wire_between_two_members_is_cut_with_either() -> None:
    wires = {wire.listen: wire for wire in SMALL.wires()}
    one, other = Who(1, 0), Who(1, 2)
    host, _, port = SMALL.way(one, other).rpartition(":")
    wire = wires[host, int(port)]
    assert wire.target == (SMALL.bound(other), SMALL.ports.ha)
    assert set(wire.way) == {"broker-b-0", "broker-b-2"}


def test_what_a_member_is_told_leads_over_wires_that_exist() -> None:
    listening = {wire.listen for wire in SMALL.wires()} | {(SMALL.host, SMALL.ports.names)}
    for who in SMALL.members():
        config = member_config(SMALL, who, "/cluster/member", "/cluster/secret")
        addresses = str(config["replication.members"]).split(",")
        others = [each for number, each in enumerate(addresses) if number != who.ordinal]
        for each in [*others, str(config["name_servers"])]:
            host, _, port = each.rpartition(":")
            assert (host, int(port)) in listening, each


def test_members_have_the_terms_of_the_group_and_the_coordinator_has_none() -> None:
    config = member_config(SMALL, Who(0, 1), "/cluster/broker-a-1", "/cluster/secret")
    watched = coordinator_config(SMALL, "/cluster/registers", "/cluster/secret")
    assert (config["role"], config["replication.min_in_sync"]) == ("SYNC_MASTER", 2)
    assert config["replication.renew_every_s"] == 1.0
    assert not {"role", "min-in-sync", "failover-timers"} & watched.keys()
    assert config["replication.register"] == "file:/cluster/broker-a-1/reach/broker-a.json"
    assert config["store.flush"] == "SYNC_FLUSH"


def test_settings_of_the_person_win() -> None:
    layout = replace(SMALL, settings={"pull.count_max": "64"})
    assert member_config(layout, Who(0, 0), "/f", "/s")["pull.count_max"] == "64"


@pytest.mark.parametrize("change", [{"groups": 0}, {"groups": 27}, {"replicas": 9}, {"replicas": 1}])
def test_a_cluster_that_cannot_be_is_refused(change: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        replace(SMALL, **change)  # type: ignore[arg-type]


def test_a_member_is_named_with_a_slash_or_as_its_folder() -> None:
    assert who_is(SMALL, "broker-b/2") == who_is(SMALL, "broker-b-2") == Who(1, 2)
    with pytest.raises(ConfigError, match="broker-a-0, broker-a-1"):
        who_is(SMALL, "broker-c/0")
