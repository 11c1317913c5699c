from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gantry.cli.watched import plan_of_file, plan_of_flags
from gantry.errors import ConfigError
from gantry.failover.agreement import untold
from gantry.replication.timers import TIMERS

FLAGS: dict[str, object] = {
    "group": "broker-a",
    "register": "file:/shared/a.json",
    "members": "h0:9405,h1:9405, h2:9405",
    "secret_file": "/secret",
    "role": None,
}
FILE = """
secret-file: /etc/secret
failover-timers: fast
groups:
  broker-a: {register: "file:/shared/a.json", members: ["h0:9405", "h1:9405", "h2:9405"]}
  broker-b: {register: "file:/shared/b.json", members: "h0:9406", role: ASYNC_MASTER, failover-timers: default}
"""


def test_flags_name_one_group() -> None:
    plan = plan_of_flags(FLAGS)
    watched, register = plan.groups["broker-a"]
    assert plan.secret_file == "/secret" and register.register == "file:/shared/a.json"
    assert watched.addresses == ("h0:9405", "h1:9405", "h2:9405") and watched.timers is None
    assert watched.policy == untold(3) and register.renew_every_s == 2.5


def test_a_file_names_several_and_what_they_share_once(tmp_path: Path) -> None:
    path = tmp_path / "groups.yaml"
    path.write_text(FILE)
    plan = plan_of_file(str(path))
    (first, _), (second, register) = plan.groups["broker-a"], plan.groups["broker-b"]
    assert plan.secret_file == "/etc/secret" and register.register == "file:/shared/b.json"
    assert first.timers == TIMERS["fast"] and second.timers == TIMERS["default"]
    assert first.policy == replace(untold(3), suspect_after_s=2.0)
    assert second.policy == replace(untold(1), is_sync_master=False, suspect_after_s=5.0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"group": None}, "--group missing"),
        ({"members": "h0"}, "--members: members 'h0': expected 1 to 64 of: HOST:PORT"),
        ({"members": "h0:99999"}, "expected 1 to 64 of: HOST:PORT"),
        ({"min_in_sync": 4}, "min-in-sync 4"),
        ({"preferred": 3}, "preferred 3"),
        ({"register": "zookeeper:/x"}, "expected file:"),
        ({"failover_timers": "slow"}, "default, fast"),
    ],
)
def test_flags_that_cannot_be_meant_are_named(change: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        plan_of_flags(FLAGS | change)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [", "is not YAML"),
        ("- a", "expected keys"),
        ("secret-file: x", "groups: found 0, expected 1 to 64"),
        ("secret-file: x\ngroups: {}", ":2: groups: expected keys"),
        ("secret-file: x\ngroups: 5", ":2: groups: expected keys"),
        ("secret-file: x\ngroups: {b: }", ":2: groups.b: expected the group's keys"),
        ("groups: {b: {members: 'h:1', register: 'file:/a', role: ASYNC_MASTER}}", "secret-file is missing"),
        ("secret-file: x\ngroups: {b: {member: 'h:1'}}", ":2: member is not known; the nearest known key is members"),
        (
            "secret-file: x\nrole: SLAVE\ngroups: {b: {members: 'h:1', register: 'file:/a'}}",
            ":2: role 'SLAVE': expected one of SYNC_MASTER, ASYNC_MASTER",
        ),
    ],
)
def test_a_file_that_cannot_be_meant_names_the_key(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "groups.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=reason) as raised:
        plan_of_file(str(path))
    assert str(path) in str(raised.value)
