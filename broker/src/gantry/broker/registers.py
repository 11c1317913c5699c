"""Opens the register that a configuration names: a file on this machine, or a Lease in a Kubernetes cluster."""

from __future__ import annotations

import asyncio
import os
import secrets
from typing import TYPE_CHECKING

from gantry.errors import ConfigError
from gantry.replication.register import Register
from gantry.replication.registerfile import FileRegister

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry.broker.settings.sections import ReplicationConfig
    from gantry.replication.register import Seen
    from gantry.store.disk import Disk


async def _elsewhere(job: Callable[[], Seen | None]) -> Seen | None:
    """Run a function that may wait for a disk in another thread."""
    return await asyncio.to_thread(job)


def open_register(config: ReplicationConfig, disk: Disk) -> Register:
    """Return the register; ConfigError when it cannot be reached from this machine."""
    kind, _, rest = config.register.partition(":")
    if kind == "file":
        return FileRegister(os.path.abspath(os.path.expanduser(rest)), disk, _elsewhere)
    return _lease(config, *rest.split("/", 1))


def _lease(config: ReplicationConfig, namespace: str, name: str) -> Register:
    # Imported here because it takes time; only members with a Lease need it.
    import ssl

    from gantry.replication.lease import LeaseAddress, LeaseRegister

    server = config.register_server
    if not server:
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise ConfigError(
                "replication.register is a Lease and this is not a pod: set replication.register_server to the address "
                "of the API server"
            )
        server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"

    def token() -> str:
        with open(config.register_token_file, encoding="utf-8") as file:
            return file.read(64 << 10).strip()

    trust = None
    if server.startswith("https:"):
        try:
            trust = ssl.create_default_context(cafile=config.register_ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"replication.register_ca_file {config.register_ca_file}: {error}") from error
    address = LeaseAddress(server, namespace, name, token, trust)
    return LeaseRegister(address, secrets.token_hex(4), max(0.2, config.renew_every_s / 2))
