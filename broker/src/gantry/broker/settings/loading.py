"""Where a broker's configuration comes from, weakest first.

    1. the default in the declaration of the key
    2. a command's own default (`gantry standalone` makes smaller files)
    3. what a `profile` stands for, wherever that was named
    4. the file: YAML, or RocketMQ's broker.conf
    5. a variable GANTRY_<SECTION>_<KEY>
    6. a flag

A later one wins.  The same three steps follow for all of them: each value is read as its key declares it, the rules
between keys are checked, and what is wrong ends as one ConfigError that names every fault and the place of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gantry.broker.settings import brokerconf, keyrules, profiles
from gantry.broker.settings.config import BrokerConfig
from gantry.broker.settings.profiles import Profile
from gantry.broker.settings.sources import Source, build, from_environment, from_flags, from_yaml, places_of


def load(
    path: str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    base: Mapping[str, object] | None = None,
    first: Callable[[BrokerConfig], None] | None = None,
    spoken: Mapping[str, str] | None = None,
    is_standalone: bool = False,
) -> tuple[BrokerConfig, list[str]]:
    """The configuration and what the operator should be told about it (keys of a broker.conf without meaning here).

    `flags` and `base` have dotted keys (`store.root`); `base` holds a command's own defaults and is weaker than
    the file; `spoken` is what the user typed for a key of `flags`, such as `--data`.  ConfigError names key, value,
    bounds and source of everything that is wrong and, for an unknown key, the nearest known one.  `first` is a
    command's own look at it, before the rules between keys.  `is_standalone`: without a secret it has no slaves.
    """
    sources: list[Source] = [from_flags(base or {}, "built-in default")]
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


def _of_profile(sources: list[Source], is_standalone: bool) -> Source:
    """What the strongest `profile` stands for; its name itself is read with the other keys."""
    given = {key: value for source in sources for key, value in source.values.items()}
    wanted = given.get("profile")
    name = wanted.strip().lower() if isinstance(wanted, str) else ""
    profile = Profile(name) if name in tuple(Profile) else Profile.NONE
    is_alone = is_standalone and not given.get("replication.secret_file")
    return from_flags(profiles.values(profile, is_alone), f"profile {profile}")
