"""Who a client says it is.

A client id is `ip@pid#salt`: brokers tell the members of a group apart by it, and all members sort each
other by it, so two living clients must never share one.  The ip is the one that the name server would
see; message ids begin with it as well.
"""

from __future__ import annotations

import os
import random
import socket

from gantry.clock import Clock
from gantry.model.ids import UniqueIds
from gantry.transport.addresses import pack_host, split_address

_LOOPBACK = "127.0.0.1"


class Identity:
    """A client id, and the message ids that go with it."""

    def __init__(self, nameserver: str, clock: Clock) -> None:
        salt = random.SystemRandom().getrandbits(32)
        ip = _ip_towards(nameserver)
        self.client_id = f"{ip}@{os.getpid()}#{salt:08x}"
        self.message_ids = UniqueIds(pack_host(ip, 0)[:-4], os.getpid(), salt, clock)
        self.random = random.Random(salt)


def _ip_towards(address: str) -> str:
    """Our ip on the way to an address: a datagram socket is told the way, nothing is sent."""
    host, port = split_address(address)
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0]).partition("%")[0]
    except OSError:
        return _LOOPBACK
