"""Makes the layout of `gantry local up` from its flags: the folder's own layout, or a new one.

A folder keeps the layout of its cluster.  Flags that differ from it are refused, because a start cannot add or remove
groups and members.  `--set` may be different at each start.
"""

from __future__ import annotations

import argparse
import errno
import random
import secrets
import socket
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from gantry.broker.settings.config import BrokerConfig
from gantry.broker.settings.keyrules import check
from gantry.broker.settings.sources import build, from_flags
from gantry.errors import ConfigError
from gantry.local import namespaces
from gantry.local.folder import Folder
from gantry.local.layout import REPLICAS_MAX, Layout, Links, Ports, Who, member_config

# Keys that the layout sets for each member; another value would break the cluster.
_OWNED = frozenset({
    "cluster", "name", "profile", "id", "role", "name_servers", "store.root",
    "standalone.nameserver_port", "standalone.grpc_port", "standalone.queues_port", "standalone.queues_users",
    "standalone.tls_cert", "standalone.tls_key",
    "network.bind", "network.advertise", "network.port", "network.vip_port", "network.ha_port", "network.ha_api_port",
    "network.http_port", "replication.secret_file", "replication.master", "replication.register",
    "replication.ordinal", "replication.members",
})  # fmt: skip
_TRIES = 30
_SHIFTS = range(20, 15_000)  # below 32768, where the system takes ports for outgoing connections


def layout_for(folder: Folder, arguments: argparse.Namespace) -> Layout:
    """Return the layout, saved in the folder; ConfigError for flags that do not fit it."""
    settings = _settings(arguments.set)
    if not folder.exists:
        _check(settings or {})
        layout = _made(folder, arguments, settings or {})
        folder.make(layout)
        return layout
    layout = folder.load().layout
    _check(layout.settings if settings is None else settings)
    for flag, given, found in (
        ("--groups", arguments.groups, layout.groups),
        ("--replicas", arguments.replicas, layout.replicas),
        ("--profile", arguments.profile, layout.profile),
        ("--failover-timers", arguments.failover_timers, layout.timers),
        ("--links", None if arguments.links == "auto" else arguments.links, layout.links),
    ):
        if given is not None and given != found:
            raise ConfigError(f"{folder.path} holds a cluster with {flag} {found}, not {given}; use another --dir")
    if settings is not None and settings != layout.settings:
        layout = replace(layout, settings=settings)
        folder.change(lambda state: replace(state, layout=layout))
    return layout


def _made(folder: Folder, arguments: argparse.Namespace, settings: dict[str, str]) -> Layout:
    wanted = arguments.links or "auto"
    links = Links(wanted) if wanted != "auto" else Links.NAMESPACES if namespaces.can_be() else Links.PROXY
    taken = namespaces.nets_taken() if links is Links.NAMESPACES else frozenset()
    busy = ""
    for net, ports in _candidates(str(folder.path)):
        layout = Layout(
            secrets.token_hex(16),
            1 if arguments.groups is None else arguments.groups,
            3 if arguments.replicas is None else arguments.replicas,
            arguments.profile or "durable",
            arguments.failover_timers or "default",
            links,
            net,
            ports,
            settings,
        )
        busy = f"198.18.{net}.0/24 is in use" if net in taken else _busy(layout)
        if not busy:
            return layout
    raise ConfigError(f"no addresses and ports for it in {_TRIES} attempts; the last said: {busy}")


def _candidates(path: str) -> Iterator[tuple[int, Ports]]:
    """Yield network numbers and ports to try: first those derived from the folder, with the usual ports, then random
    ones.
    """
    yield 1 + zlib.crc32(path.encode()) % 254, Ports()
    chance = random.SystemRandom()
    for _ in range(_TRIES):
        yield chance.randint(1, 254), Ports().shifted(chance.choice(_SHIFTS))


def _busy(layout: Layout) -> str:
    for host, port in layout.listeners():
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError as error:
                if layout.links is Links.NAMESPACES and error.errno == errno.EADDRNOTAVAIL:
                    continue  # the bridge is made later
                return f"{host}:{port}: {error.strerror}"
    return ""


def _check(settings: Mapping[str, str]) -> None:
    """Raise ConfigError for settings that no member could start with, before the folder is made."""
    owned = sorted(_OWNED & settings.keys())
    if owned:
        raise ConfigError(f"--set {', '.join(owned)}: gantry local sets names, role, addresses and folders itself")
    member = Layout("0", 1, REPLICAS_MAX, "fast", "default", Links.DIRECT, 1, Ports(), settings)
    given = member_config(member, Who(0, 0), "/", "/secret")
    places = {key: f"--set {key}" for key in settings}
    check(build(BrokerConfig, [from_flags(given, "gantry local", places)]), places)


def _settings(texts: list[str] | None) -> dict[str, str] | None:
    if texts is None:
        return None
    pairs = [text.partition("=") for text in texts]
    for key, equals, _ in pairs:
        if not equals or not key:
            raise ConfigError(f"--set {key!r}: expected KEY=VALUE")
    return {key.strip(): value.strip() for key, _, value in pairs}
