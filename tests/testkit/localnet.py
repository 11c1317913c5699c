"""A layout of a local cluster whose addresses and ports are free at the moment."""

from __future__ import annotations

import random
import secrets
import socket

from gantry.local.layout import Layout, Links, Ports


def free_layout(links: Links, groups: int = 1, replicas: int = 3) -> Layout:
    """A layout; AssertionError when nothing is free."""
    chance = random.SystemRandom()
    for _ in range(50):
        ports = Ports().shifted(chance.randrange(20, 15_000))
        net = chance.randint(1, 254)
        layout = Layout(secrets.token_hex(16), groups, replicas, "durable", "fast", links, net, ports, {})
        if all(_is_free(host, port) for host, port in layout.listeners()):
            return layout
    raise AssertionError("no free addresses")


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True
