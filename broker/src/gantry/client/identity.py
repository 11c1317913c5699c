"""A client's id, and the ids of its messages.

A client id is `ip@pid#salt`.  Brokers identify the members of a group by it, and all members sort each other by it, so
two running clients must never have the same.  A forked process therefore renews it.  The ip is the local one on the
route to the name server.  When the name server is given by name, it is that of the default route, because a name lookup
takes time; no peer connects to this ip.  Message ids begin with it as well.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket

from gantry.clock import Clock
from gantry.model.ids import UniqueIds
from gantry.transport.addresses import pack_host, split_address

_LOOPBACK = "127.0.0.1"
_ELSEWHERE = "192.0.2.1", "2001:db8::1"  # addresses for documentation (RFC 5737, RFC 3849); nothing is sent there


class ClientIdentity:
    """A client id, and the generator of its message ids."""

    def __init__(self, nameserver: str, clock: Clock) -> None:
        self._ip = _ip_towards(nameserver)
        self._clock = clock
        self.random = random.Random()
        self.renew()

    def renew(self) -> None:
        """Take another client id and other message ids."""
        salt = random.SystemRandom().getrandbits(32)
        self.client_id = f"{self._ip}@{os.getpid()}#{salt:08x}"
        self.message_ids = UniqueIds(pack_host(self._ip, 0)[:-4], os.getpid(), salt, self._clock)
        self.random.seed(salt)


def _ip_towards(address: str) -> str:
    """Return our ip on the route to an address, by a datagram socket: nothing is sent, no name is looked up."""
    host, port = split_address(address)
    for literal in (host, *_ELSEWHERE):
        with contextlib.suppress(OSError):
            numeric = socket.AI_NUMERICHOST
            family, kind, protocol, _, target = socket.getaddrinfo(
                literal, port, type=socket.SOCK_DGRAM, flags=numeric
            )[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(target)
                return str(probe.getsockname()[0]).partition("%")[0]
    return _LOOPBACK
