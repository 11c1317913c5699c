"""The configuration of `gantry coordinator`, from flags or a file: groups, registers and one secret.

Every key has the name of its flag.  In a file, keys at the top apply to all groups, and a group may override them,
except for the secret, which all members of a cluster share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from gantry.broker.settings.sections import HOST_PORT, REGISTER, REGISTER_FORM, ReplicationConfig
from gantry.broker.settings.sources import from_flags, from_yaml, nearest, quoted
from gantry.errors import ConfigError
from gantry.failover.agreement import untold
from gantry.failover.decide import Policy
from gantry.failover.watch import Watched
from gantry.model.keys import number, read, several, table, words
from gantry.replication.members import MEMBERS_MAX
from gantry.replication.timers import TIMERS

_T = TypeVar("_T")

GROUPS_MAX = 64
_ROLES = ("SYNC_MASTER", "ASYNC_MASTER")
_OWN = ReplicationConfig()


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """Settings that the groups of a coordinator share."""

    secret_file: str = words("", "File with the secret that the members prove to each other.", low=1)
    register_server: str = words("", "API server of a Lease, https://HOST:PORT. Empty: the one of this pod.")
    register_token_file: str = words(_OWN.register_token_file, "File with the token for that server.", low=1)
    register_ca_file: str = words(_OWN.register_ca_file, "File with that server's certificate of authority.", low=1)
    local_uid: str = words("", "Mark of the processes of a cluster that `gantry local` started; set by it.", high=64)


@dataclass(frozen=True, slots=True)
class OfAGroup:
    """Settings of one group; all but `register` and `members` may stand at the top for all groups."""

    register: str = words("", "Where it is written who leads.", REGISTER, REGISTER_FORM, low=1)
    members: tuple[str, ...] = several(
        (), 1, MEMBERS_MAX, HOST_PORT, "HOST:PORT", "Address of `/ha/v1` of every member, by ordinal."
    )
    role: str = words(
        "",
        "The group's policy. Empty: as its members say; ASYNC_MASTER makes the coordinator wait longer.",
        f"({'|'.join(_ROLES)})?",
        f"one of {', '.join(_ROLES)}",
    )
    min_in_sync: int = number(0, 1, MEMBERS_MAX, "members", "The least that counts.", {0: "as the members say"})
    preferred: int = number(0, 0, MEMBERS_MAX - 1, "", "Ordinal of the member that leads where several are equal.")
    cluster_uid: str = words("", "Id of a cluster of several groups. Empty: the one that the register has.", high=64)
    failover_timers: str = words(
        "",
        "How long a master may be silent: 5 s or 2 s at least. Empty: two renewals of the members.",
        f"({'|'.join(sorted(TIMERS))})?",
        f"one of {', '.join(sorted(TIMERS))}",
    )


_ALONE = ("register", "members")


@dataclass(frozen=True, slots=True)
class WatchedGroups:
    """The groups to watch by name, each with its register.

    local_uid: the members are processes of this machine that `gantry local` started with this mark (`local.processes`),
    so that a missing process is known to have ended; empty: processes are not observed.
    """

    secret_file: str
    local_uid: str
    groups: Mapping[str, tuple[Watched, ReplicationConfig]]


@dataclass(frozen=True, slots=True)
class _Given:
    """A value of the configuration, and where it was given."""

    value: object
    place: str


def plan_of_flags(arguments: Mapping[str, object]) -> WatchedGroups:
    """Return the plan of one group; ConfigError that names the missing or invalid flag."""
    known = {*table(CoordinatorSettings), *table(OfAGroup), "group"}
    flags = {key: value for key, value in arguments.items() if key in known and value not in (None, "")}
    missing = [f"--{_typed(key)}" for key in ("group", "register", "members", "secret_file") if key not in flags]
    if missing:
        raise ConfigError(f"{', '.join(missing)} missing; name them, or several groups in a file by --config")
    name = str(flags.pop("group"))
    source = from_flags(flags, "flag", {key: f"--{_typed(key)}" for key in flags})
    given = {key: _Given(value, source.places[key]) for key, value in source.values.items()}
    return WatchedGroups(str(flags["secret_file"]), "", {name: _group(f"group {name}", name, given)})


def plan_of_file(path: str) -> WatchedGroups:
    """Return the plan of several groups; ConfigError that names file, line and key."""
    source = from_yaml(path)
    shared: dict[str, _Given] = {}
    groups: dict[str, dict[str, _Given]] = {}
    for key, value in source.values.items():
        given = _Given(value, source.places[key])
        if key.startswith("groups."):
            name, _, own = key.removeprefix("groups.").rpartition(".")
            if not name:
                raise ConfigError(f"{given.place}: groups.{own}: expected the group's keys below it")
            groups.setdefault(name, {})[_known(own, given, set(table(OfAGroup)))] = given
        elif key == "groups":
            raise ConfigError(f"{given.place}: groups: expected keys and values, a group's name and its keys")
        else:
            shared[_known(key, given, {*table(CoordinatorSettings), *table(OfAGroup)} - {*_ALONE})] = given
    if not 1 <= len(groups) <= GROUPS_MAX:
        raise ConfigError(f"{path}: groups: found {len(groups)}, expected 1 to {GROUPS_MAX}")
    if "secret_file" not in shared:
        raise ConfigError(f"{path}: secret-file is missing")
    planned = {name: _group(f"{path}: groups.{name}", name, {**shared, **own}) for name, own in groups.items()}
    common = _read(CoordinatorSettings, shared)
    return WatchedGroups(common.secret_file, common.local_uid, planned)


def _group(place: str, name: str, given: Mapping[str, _Given]) -> tuple[Watched, ReplicationConfig]:
    missing = [key for key in _ALONE if key not in given]
    if missing:
        raise ConfigError(f"{place}: {_typed(missing[0])} is missing")
    shared, own = _read(CoordinatorSettings, given), _read(OfAGroup, given)
    timers = TIMERS[own.failover_timers] if own.failover_timers else None
    register = ReplicationConfig(
        register=own.register,
        register_server=shared.register_server,
        register_token_file=shared.register_token_file,
        register_ca_file=shared.register_ca_file,
        renew_every_s=(timers or TIMERS["default"]).renew_every_s,
    )
    policy = _policy(place, own, 0.0 if timers is None else timers.suspect_after_s)
    return Watched(name, own.members, policy, timers, own.cluster_uid), register


def _policy(place: str, own: OfAGroup, suspect_after_s: float) -> Policy:
    replicas = len(own.members)
    if own.min_in_sync > replicas or own.preferred >= replicas:
        raise ConfigError(
            f"{place}: min-in-sync {own.min_in_sync}, preferred {own.preferred} with {replicas} members; "
            "min-in-sync is their number at most, ordinals begin at 0"
        )
    told = replace(untold(replicas, own.preferred), suspect_after_s=suspect_after_s)
    return replace(told, is_sync_master=own.role != _ROLES[1], min_in_sync=own.min_in_sync or told.min_in_sync)


def _read(tree: type[_T], given: Mapping[str, _Given]) -> _T:
    make: Callable[..., _T] = tree
    values = {}
    for key, entry in table(tree).items():
        if key in given:
            try:
                values[key] = read(given[key].value, entry)
            except ValueError as error:
                raise ConfigError(f"{given[key].place}: {_typed(key)} {quoted(given[key].value)}: {error}") from error
    return make(**values)


def _known(key: str, given: _Given, known: set[str]) -> str:
    """Return the name of the key; ConfigError when it is unknown. In a file it has the name of its flag."""
    name = key.replace("-", "_")
    if name not in known or "_" in key:
        raise ConfigError(f"{given.place}: {key} is not known{nearest(key, sorted(map(_typed, known)))}")
    return name


def _typed(key: str) -> str:
    return key.replace("_", "-")
