"""What `gantry coordinator` is told to watch: from flags or a file to groups, registers and one secret.

Every key has the name of its flag.  In a file, what all groups share stands at the top and may be said for one group
again, but for the secret: the members of a cluster share that.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from gantry.broker.sections import ReplicationConfig
from gantry.broker.sources import read_text
from gantry.errors import ConfigError
from gantry.failover.decide import Policy
from gantry.failover.timers import TIMERS
from gantry.failover.watch import Watched
from gantry.replication.members import MEMBERS_MAX

GROUPS_MAX = 64
_LEASE = ("register-server", "register-token-file", "register-ca-file")
_SHARED = frozenset({"secret-file", "local-uid", "cluster-uid", "failover-timers", "role", "min-in-sync", *_LEASE})
_OF_A_GROUP = frozenset({"register", "members", "preferred", "cluster-uid", "failover-timers", "role", "min-in-sync"})
_ROLES = ("SYNC_MASTER", "ASYNC_MASTER")

Settings = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Plan:
    """By name of the group, whom to watch and where its register is.

    `local_uid`: members are processes of this machine with the mark of that local cluster (`local.processes`), so that
    one that is not there is known to be gone; empty: nobody knows about processes.
    """

    secret_file: str
    local_uid: str
    groups: Mapping[str, tuple[Watched, ReplicationConfig]]


def plan_of_flags(arguments: Mapping[str, object]) -> Plan:
    """One group; ConfigError naming the flag that is missing or cannot be meant."""
    given = {key.replace("_", "-"): value for key, value in arguments.items() if value is not None}
    missing = [f"--{key}" for key in ("group", "register", "members", "secret-file") if not given.get(key)]
    if missing:
        raise ConfigError(f"{', '.join(missing)} missing; name them, or several groups in a file by --config")
    name = str(given["group"])
    return Plan(str(given["secret-file"]), "", {name: _group(f"group {name}", name, given)})


def plan_of_file(path: str) -> Plan:
    """Several groups; ConfigError naming the file and the key."""
    import yaml

    try:
        document = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    top = _mapping(document, path)
    groups = _mapping(top.get("groups"), f"{path}: groups")
    shared = {key: value for key, value in top.items() if key != "groups"}
    _check_keys(path, shared, _SHARED)
    if not 1 <= len(groups) <= GROUPS_MAX:
        raise ConfigError(f"{path}: {len(groups)} groups, expected 1 to {GROUPS_MAX}")
    secret_file = _text(path, shared, "secret-file")
    planned = {}
    for name, settings in groups.items():
        place = f"{path}: groups.{name}"
        own = _mapping(settings, place)
        _check_keys(place, own, _OF_A_GROUP)
        planned[name] = _group(place, name, {**shared, **own})
    return Plan(secret_file, str(shared.get("local-uid", "")), planned)


def _group(place: str, name: str, settings: Settings) -> tuple[Watched, ReplicationConfig]:
    addresses = _addresses(place, settings.get("members"))
    timers = TIMERS.get(str(settings.get("failover-timers", "default")))
    if timers is None:
        raise ConfigError(f"{place}: failover-timers: expected one of {', '.join(TIMERS)}")
    policy = _policy(place, settings, len(addresses), timers.suspect_after_s)
    watched = Watched(name, addresses, policy, timers, str(settings.get("cluster-uid", "")))
    return watched, _register(place, settings, timers.renew_every_s)


def _register(place: str, settings: Settings, renew_every_s: float) -> ReplicationConfig:
    """Where the register is, in the words of the members' own configuration."""
    register = _text(place, settings, "register")
    kind, _, where = register.partition(":")
    if not (kind == "file" and where.startswith("/")) and not (kind == "lease" and where.count("/") == 1):
        raise ConfigError(f"{place}: register {register!r}: expected file:/PATH or lease:NAMESPACE/NAME")
    own = ReplicationConfig()
    usual = (own.register_server, own.register_token_file, own.register_ca_file)
    server, token, trust = (str(settings.get(flag) or value) for flag, value in zip(_LEASE, usual, strict=True))
    return ReplicationConfig(
        register=register,
        register_server=server,
        register_token_file=token,
        register_ca_file=trust,
        renew_every_s=renew_every_s,
    )


def _policy(place: str, settings: Settings, replicas: int, suspect_after_s: float) -> Policy:
    role = str(settings.get("role", _ROLES[0]))
    if role not in _ROLES:
        raise ConfigError(f"{place}: role {role}: expected {' or '.join(_ROLES)}")
    is_sync = role == _ROLES[0]
    min_in_sync = _number(place, settings, "min-in-sync", 2 if is_sync else 1) or (2 if is_sync else 1)
    preferred = _number(place, settings, "preferred", 0)
    if not 1 <= min_in_sync <= replicas or not 0 <= preferred < replicas:
        raise ConfigError(
            f"{place}: min-in-sync {min_in_sync}, preferred {preferred} with {replicas} members; "
            "min-in-sync is their number at most, ordinals begin at 0"
        )
    return Policy(replicas, min_in_sync, is_sync, suspect_after_s, preferred)


def _addresses(place: str, value: object) -> tuple[str, ...]:
    found = value.split(",") if isinstance(value, str) else value
    if not isinstance(found, list) or not 1 <= len(found) <= MEMBERS_MAX:
        raise ConfigError(f"{place}: members: expected 1 to {MEMBERS_MAX} addresses HOST:PORT, by ordinal")
    addresses = tuple(str(each).strip() for each in found)
    for each in addresses:
        host, _, port = each.rpartition(":")
        if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
            raise ConfigError(f"{place}: members: {each!r} is no HOST:PORT")
    return addresses


def _number(place: str, settings: Settings, key: str, default: int) -> int:
    value = settings.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{place}: {key} {value!r}: expected a number")
    return value


def _text(place: str, settings: Settings, key: str) -> str:
    value = settings.get(key)
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{place}: {key} is missing")
    return value


def _mapping(value: object, place: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ConfigError(f"{place}: expected keys and values, found a {type(value).__name__}")
    return {str(key): each for key, each in value.items()}


def _check_keys(place: str, found: Settings, known: frozenset[str]) -> None:
    for key in found:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            raise ConfigError(f"{place}: {key} is not known{f'; did you mean {near[0]}?' if near else ''}")
