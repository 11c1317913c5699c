"""The broker's addresses, which are determined first: they are part of every record and every message id.

A port is taken in two steps.  `reserve` binds a socket without listening.  So port 0 becomes a number, and a taken port
is found before a long recovery; clients are refused meanwhile, and ask another broker.  The server then binds the same
port beside the reservation (SO_REUSEADDR allows that while only one of them listens), and the reservation is released.

Clients get the configured address, else the one bound to, else the source address of this machine's default route.
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
# The target of a datagram socket, to read the routing table; nothing is sent.
_SOMEWHERE = ("192.0.2.1", 9)


class Reserved(Protocol):
    """A port that is reserved until it is released."""

    @property
    def port(self) -> int:
        ...

    def release(self) -> None:
        ...


class Reservation:
    """A bound port that is not listened on; ConfigError when it is taken."""

    def __init__(self, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))  # fails while another process listens there
        except OSError as error:
            self._socket.close()
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
        self.port: int = self._socket.getsockname()[1]

    def release(self) -> None:
        self._socket.close()


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses that the broker listens on, and the one for clients."""

    bind: str
    port: int
    vip_port: int | None
    advertised: str  # "ip:port"
    packed: bytes  # the same in the form of records: 8 or 20 bytes
    ha_port: int | None = None  # the replication port; None: no slaves

    @property
    def ha(self) -> str:
        """The replication address for registrations; RocketMQ's broker always has one."""
        port = self.port + 1 if self.ha_port is None else self.ha_port
        return host_text(self.packed[:-4] + port.to_bytes(4, "big"))


def wanted(config: BrokerConfig) -> dict[str, int]:
    """Return the ports that a broker with this configuration takes, by key; 0 and less: not a fixed port."""
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
    """Reserve the ports and find the address for clients. ConfigError when a port is taken or a name unknown.

    Every reservation is added to the caller's list at once, so that none is lost when this is cancelled.
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
        return str(ipaddress.ip_address(name))  # no lookup is needed, which would take a thread
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
