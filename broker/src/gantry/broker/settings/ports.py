"""The broker's addresses, known before anything else: they go into every record and every message id.

A port is taken in two steps.  `reserve` binds a socket without listening, so that port 0 becomes a number and a
taken port is found before a long recovery and not after it; clients are refused meanwhile, and ask another
broker.  The server then binds the same port beside the reservation (SO_REUSEADDR allows that while only one of
them listens) and the reservation is given back.

What clients are told is the configured address, else the one bound to, else the one this machine would speak from.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from dataclasses import dataclass
from typing import Protocol

from gantry.broker.settings.config import BrokerConfig
from gantry.broker.settings.sections import NetworkConfig
from gantry.errors import ConfigError
from gantry.transport.addresses import host_text, pack_host

VIP_FOLLOWS, VIP_NONE = -1, -2
_VIP_DISTANCE = 2  # RocketMQ: the VIP port is the listen port minus two
_EVERYWHERE = frozenset({"", "0.0.0.0", "::"})
# Where a datagram would go if it were sent; only the routing table is asked.
_SOMEWHERE = ("192.0.2.1", 9)


class Reserved(Protocol):
    """A port that is ours until it is given back."""

    @property
    def port(self) -> int:
        """Its number."""
        ...

    def release(self) -> None:
        """Give it back."""
        ...


class Reservation:
    """A bound port that nobody listens on yet."""

    def __init__(self, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))  # fails while somebody listens there
        except OSError as error:
            self._socket.close()
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
        self.port: int = self._socket.getsockname()[1]

    def release(self) -> None:
        """Give the port back."""
        self._socket.close()


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the broker listens and how clients find it."""

    bind: str
    port: int
    vip_port: int | None
    advertised: str  # "ip:port"
    packed: bytes  # the same as it stands in records: 8 or 20 bytes
    ha_port: int | None = None  # where slaves connect; None: nobody may

    @property
    def ha(self) -> str:
        """The replication address that registrations name; RocketMQ's broker always names one."""
        port = self.port + 1 if self.ha_port is None else self.ha_port
        return host_text(self.packed[:-4] + port.to_bytes(4, "big"))


def wanted(config: BrokerConfig) -> dict[str, int]:
    """The ports that a broker with this configuration takes, by key; 0 and less: none that could be named before."""
    network = config.network
    ports = {
        "network.port": network.port,
        "network.vip_port": network.port - _VIP_DISTANCE if network.vip_port == VIP_FOLLOWS else network.vip_port,
        "network.http_port": network.http_port,
    }
    if config.replication.secret_file:
        ports["network.ha_port"] = network.port + 1 if network.ha_port < 0 else network.ha_port
        ports["network.ha_api_port"] = network.ha_api_port
    return ports


async def reserve(config: NetworkConfig, reservations: list[Reserved]) -> Addresses:
    """Take the ports and find out the address that clients are told.

    Every reservation stands in the caller's list as soon as it is made, so that none is lost when this is cancelled.
    """
    reservations.append(Reservation(config.bind, config.port))
    vip_wanted = config.vip_port
    if vip_wanted == VIP_FOLLOWS:
        vip_wanted = max(0, config.port - _VIP_DISTANCE)
    if vip_wanted != VIP_NONE:
        reservations.append(Reservation(config.bind, vip_wanted))
    ports = [reservation.port for reservation in reservations]
    packed = pack_host(await _own_ip(config), ports[0])
    return Addresses(config.bind, ports[0], ports[1] if len(ports) > 1 else None, host_text(packed), packed)


async def _own_ip(config: NetworkConfig) -> str:
    name = config.advertise or ("" if config.bind in _EVERYWHERE else config.bind)
    if not name:
        return _outgoing_ip()
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(name))  # nothing to ask, which would take a thread
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"network.advertise {name!r} is no address and no known name: {error}") from error
    return str(found[0][4][0])


def _outgoing_ip() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_SOMEWHERE)
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
