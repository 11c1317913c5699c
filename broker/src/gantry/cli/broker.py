"""`gantry broker`: one broker, registered at the configured name servers.

Sizes and defaults are RocketMQ's, so that either broker can open a folder of the other.  `--config` takes YAML or a
broker.conf.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from gantry.broker.broker import Broker
from gantry.broker.machine import Carrying, Machine
from gantry.broker.settings.config import BrokerConfig
from gantry.cli.serve import reachable, serve
from gantry.cli.serverflags import (
    MEMBERSHIP,
    NETWORK,
    PROFILE,
    STORE,
    add_server_flags,
    load_config,
    log,
    port_flags,
    warn_when_pure,
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags for folder, addresses, membership, configuration and logs."""
    add_server_flags(parser, STORE, PROFILE, NETWORK, MEMBERSHIP)


def run(arguments: argparse.Namespace) -> int:
    """Serve until asked to stop. Return the exit code."""
    config = load_config(arguments, {})
    warn_when_pure()
    if not config.name_servers:
        log.warning("no name server is named: clients will not find this broker; --namesrv HOST:PORT")
    made: list[Broker] = []
    machine = Machine(carrying=Carrying())  # survives an internal restart: to its group the broker is the same process

    def make(end: Callable[[], None]) -> Broker:
        made[:] = [Broker(made[0].settled_config if made else config, end, machine)]
        return made[0]

    def again(broker: Broker) -> bool:
        return broker.starts_again and broker.failure is None

    return serve(make, lambda broker: _ready(config, broker), lambda broker: broker.failure, port_flags(config), again)


def _ready(config: BrokerConfig, broker: Broker) -> str:
    assert broker.addresses is not None
    bind = config.network.bind
    http = f" http={reachable(bind, broker.http_port)}" if broker.http_port is not None else ""
    return f"broker={reachable(bind, broker.addresses.port)}{http}"
