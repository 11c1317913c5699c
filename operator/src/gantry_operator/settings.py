"""The operator's settings, from environment variables that the chart sets.

Each variable has an option of the same meaning, which overrides it: --log-level overrides GANTRY_OPERATOR_LOG_LEVEL.
Options are of `gantry-operator` alone; the programs of the chart's Jobs read the environment.

GANTRY_OPERATOR_BROKER_IMAGE    image of brokers and name servers whose cluster names none
GANTRY_OPERATOR_ON_UPGRADE      what those clusters do when that image changes: None, OneByOne (default), All
GANTRY_OPERATOR_VOLUME_GROUP    group id that owns the volumes of brokers: 10001; `platform`: none is named, and the
                                platform assigns one (OpenShift)
GANTRY_OPERATOR_NAMESPACES      which are watched, separated by commas; empty: all
GANTRY_OPERATOR_HTTP_PORT       /healthz, /readyz, /metrics: 8080
GANTRY_OPERATOR_LEASE           the Lease in its own namespace that decides which replica works: gantrymq-operator
GANTRY_OPERATOR_IDENTITY        how it is called there; the chart gives the pod's name
GANTRY_OPERATOR_LOG_LEVEL       debug, info, warning or error: info
GANTRY_OPERATOR_ACCOUNT         folder with token, ca.crt and namespace (its own); where Kubernetes mounts them
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gantry_operator.account import FOLDER

LEASE, IDENTITY = "gantrymq-operator", "gantry-operator"
VOLUME_GROUP = 10001
LOG_LEVELS = {
    "debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR,
}  # fmt: skip
_PREFIX = "GANTRY_OPERATOR_"
_OPTIONS = {
    "broker-image": ("IMAGE", "image of brokers and name servers whose cluster names none"),
    "on-upgrade": ("WHICH", "what those clusters do when that image changes: None, OneByOne (default), All"),
    "volume-group": ("ID", "group id that owns the volumes of brokers (10001); platform: the platform assigns one"),
    "namespaces": ("NAMES", "namespaces that are watched, separated by commas; empty: all"),
    "http-port": ("PORT", "port of /healthz, /readyz and /metrics (8080)"),
    "lease": ("NAME", "the Lease in its own namespace that decides which replica works (gantrymq-operator)"),
    "identity": ("NAME", "its name in that Lease"),
    "log-level": ("LEVEL", "debug, info (default), warning or error"),
    "account": ("FOLDER", "folder with token, ca.crt and namespace of its service account"),
}


class OnUpgrade(StrEnum):
    """What clusters with an empty spec.image do when the operator's default image changes (`imagechoice`)."""

    NONE = "None"
    ONE_BY_ONE = "OneByOne"
    ALL = "All"


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of the operator; the module's docstring describes each."""

    broker_image: str
    namespaces: tuple[str, ...] = ()
    http_port: int = 8080
    lease: str = LEASE
    identity: str = IDENTITY
    account: Path = FOLDER
    home: str = "default"  # the namespace in which it runs
    volume_group: int | None = VOLUME_GROUP
    on_upgrade: OnUpgrade = OnUpgrade.ONE_BY_ONE
    log_level: int = logging.INFO


def with_options(environment: Mapping[str, str], arguments: Sequence[str]) -> dict[str, str]:
    """Return the variables with the options of a command line over them.

    An option that is unknown or lacks its value ends the process with exit status 2; --help ends it with 0.
    """
    parser = argparse.ArgumentParser(
        prog="gantry-operator",
        description="Watch BrokerClusters, make what they need, and let each group fail over.",
        epilog=f"Each option overrides a variable: --log-level overrides {_variable('log-level')}.",
        allow_abbrev=False,
    )
    for name, (metavar, told) in _OPTIONS.items():
        parser.add_argument(f"--{name}", metavar=metavar, help=told, dest=_variable(name))
    given = vars(parser.parse_args(arguments))
    return {**environment, **{variable: text for variable, text in given.items() if text is not None}}


def _variable(option: str) -> str:
    return _PREFIX + option.upper().replace("-", "_")


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Read the settings; ValueError naming a variable that is missing or invalid."""
    image = environment.get(f"{_PREFIX}BROKER_IMAGE", "")
    if not image:
        raise ValueError(f"{_PREFIX}BROKER_IMAGE: set it to the image of brokers")
    port = environment.get(f"{_PREFIX}HTTP_PORT", "8080")
    if not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise ValueError(f"{_PREFIX}HTTP_PORT {port!r}: expected a port")
    namespaces = tuple(each.strip() for each in environment.get(f"{_PREFIX}NAMESPACES", "").split(",") if each.strip())
    lease = environment.get(f"{_PREFIX}LEASE", "") or LEASE
    identity = environment.get(f"{_PREFIX}IDENTITY", "") or IDENTITY
    account = Path(environment.get(f"{_PREFIX}ACCOUNT", "") or FOLDER)
    group = _volume_group(environment.get(f"{_PREFIX}VOLUME_GROUP", "") or str(VOLUME_GROUP))
    level = _log_level(environment.get(f"{_PREFIX}LOG_LEVEL", "") or "info")
    upgrade = _on_upgrade(environment.get(f"{_PREFIX}ON_UPGRADE", "") or OnUpgrade.ONE_BY_ONE)
    return Settings(
        image, namespaces, int(port), lease, identity, account,
        volume_group=group, on_upgrade=upgrade, log_level=level,
    )  # fmt: skip


def _on_upgrade(text: str) -> OnUpgrade:
    if text not in tuple(OnUpgrade):
        raise ValueError(f"{_PREFIX}ON_UPGRADE {text!r}: expected {', '.join(OnUpgrade)}")
    return OnUpgrade(text)


def _log_level(text: str) -> int:
    if text not in LOG_LEVELS:
        raise ValueError(f"{_PREFIX}LOG_LEVEL {text!r}: expected one of {', '.join(LOG_LEVELS)}")
    return LOG_LEVELS[text]


def _volume_group(text: str) -> int | None:
    if text == "platform":
        return None
    if not text.isdecimal() or not 1 <= int(text) < 1 << 31:
        raise ValueError(f"{_PREFIX}VOLUME_GROUP {text!r}: expected a group id from 1 on, or 'platform'")
    return int(text)
