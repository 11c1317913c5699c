"""Who a client says it is.

A client id is `ip@pid#salt`: brokers tell the members of a group apart by it, and all members sort each
other by it, so two living clients must never share one.  A forked process therefore renews it.  The ip is the one that
the name server would see, or, where that is given by name, the one that is used for addresses elsewhere: looking up a
name takes time, and nobody connects to this ip.  Message ids begin with it as well.
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
_ELSEWHERE = "192.0.2.1", "2001:db8::1"  # addresses of documentation (RFC 5737, RFC 3849); nothing is sent there


class Identity:
    """A client id, and the message ids that go with it."""

    def __init__(self, nameserver: str, clock: Clock) -> None:
        self._ip = _ip_towards(nameserver)
        self._clock = clock
        self.random = random.Random()
        self.renew()

    def renew(self) -> None:
        """Become another client, with other message ids."""
        salt = random.SystemRandom().getrandbits(32)
        self.client_id = f"{self._ip}@{os.getpid()}#{salt:08x}"
        self.message_ids = UniqueIds(pack_host(self._ip, 0)[:-4], os.getpid(), salt, self._clock)
        self.random.seed(salt)


def _ip_towards(address: str) -> str:
    """Our ip on the way to an address: a datagram socket is told the way, nothing is sent, no name is looked up."""
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
