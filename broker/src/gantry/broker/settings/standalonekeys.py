"""The keys of `gantry standalone`: what it has beside its broker."""

from __future__ import annotations

from dataclasses import dataclass

from gantry.broker.settings.sections import PORT_MAX
from gantry.model.keys import number, words

NO_PORT = -1


@dataclass(frozen=True, slots=True)
class StandaloneConfig:
    """Only for `gantry standalone`: the name server in the same process; proxy and HTTP queues, each in its own."""

    nameserver_port: int = number(9876, 1, PORT_MAX, "", "Port of the name server.", {0: "any free one"})
    grpc_port: int = number(
        8081,
        1,
        PORT_MAX,
        "",
        "Port for RocketMQ 5's clients (gRPC), where the extra `proxy` is installed.",
        {0: "any free one", NO_PORT: "none"},
    )
    queues_port: int = number(
        9407, 1, PORT_MAX, "", "Port of HTTP queues.", {0: "any free one", NO_PORT: "none"}
    )
    queues_users: str = words("", "File of access ids and secrets of HTTP queues; empty: this machine only, unsigned.")
    tls_cert: str = words("", "Certificate of the gRPC port, a PEM file; empty: one is made in the store folder.")
    tls_key: str = words("", "Private key of `standalone.tls_cert`, a PEM file.")
