"""The sources of a broker's configuration, weakest first.

    1. the default in the declaration of the key
    2. a command's own default (`gantry standalone` makes smaller files)
    3. the keys of a `profile`, wherever the profile was set
    4. the file: YAML, or RocketMQ's broker.conf
    5. a variable GANTRY_<SECTION>_<KEY>
    6. a flag

A later source wins.  Then each value is converted as its key declares, the rules between keys are checked, and all
faults are raised as one ConfigError that names each with its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gantry.broker.settings import brokerconf, keyrules, profiles
from gantry.broker.settings.config import BrokerConfig
from gantry.broker.settings.profiles import Profile
from gantry.broker.settings.sources import ConfigLayer, build, from_environment, from_flags, from_yaml, places_of


def load(
    path: str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    base: Mapping[str, object] | None = None,
    first: Callable[[BrokerConfig], None] | None = None,
    spoken: Mapping[str, str] | None = None,
    is_standalone: bool = False,
) -> tuple[BrokerConfig, list[str]]:
    """Return the configuration, and notices for the operator (keys of a broker.conf without effect here).

    flags, base     values by dotted key (`store.root`); `base` holds a command's own defaults and is weaker than the
    file spoken          the flag that the user typed for a key of `flags`, such as `--data` first           a command's
    own check, before the rules between keys is_standalone   the broker has no slaves unless a secret is set

    ConfigError names key, value, bounds and source of every fault and, for an unknown key, the nearest known one.
    """
    sources: list[ConfigLayer] = [from_flags(base or {}, "built-in default")]
    notices: list[str] = []
    commit_log: str | None = None
    if path is not None:
        if path.endswith((".conf", ".properties")):
            source, notices, commit_log = brokerconf.read(path)
            sources.append(source)
        else:
            sources.append(from_yaml(path))
    sources.append(from_environment(BrokerConfig, environment or {}))
    sources.append(from_flags(flags or {}, "flag", spoken))
    sources.insert(1, _of_profile(sources, is_standalone))
    config = build(BrokerConfig, sources, brokerconf.HINTS)
    if first is not None:
        first(config)
    keyrules.check(config, places_of(sources))
    if path is not None and commit_log is not None:
        brokerconf.check_commit_log(path, commit_log, config.store.root)
    return config, notices


def _of_profile(sources: list[ConfigLayer], is_standalone: bool) -> ConfigLayer:
    """Return the keys of the strongest `profile`; its name itself is checked with the other keys."""
    given = {key: value for source in sources for key, value in source.values.items()}
    wanted = given.get("profile")
    name = wanted.strip().lower() if isinstance(wanted, str) else ""
    profile = Profile(name) if name in tuple(Profile) else Profile.NONE
    is_alone = is_standalone and not given.get("replication.secret_file")
    return from_flags(profiles.values(profile, is_alone), f"profile {profile}")
