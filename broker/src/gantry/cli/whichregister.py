"""A register by its text, as flags and files name it, opened when it is wanted.

    file:/PATH                                    for members on one host
"""

from __future__ import annotations

from dataclasses import dataclass

from gantry.errors import ConfigError
from gantry.failover.watch import Watched
from gantry.replication.register import Register
from gantry.replication.registerfile import FileRegister
from gantry.store.disk import RealDisk


@dataclass(frozen=True, slots=True)
class WhichRegister:
    """Where a group's register is."""

    path: str

    def open(self, watched: Watched) -> Register:
        """The register; in the running loop."""
        return FileRegister(self.path, RealDisk())

    async def close(self) -> None:
        """Give back what it holds."""


def which_register(text: str) -> WhichRegister:
    """ConfigError for a text that names none."""
    kind, _, where = text.partition(":")
    if kind == "file" and where.startswith("/"):
        return WhichRegister(where)
    raise ConfigError(f"register {text!r}: expected file:/PATH")
