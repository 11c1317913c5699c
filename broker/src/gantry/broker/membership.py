"""What a broker needs to be a member of a group before its store is open: the secret, who it is, the epochs.

A static master takes the next epoch at each start: a process that restarted never goes on in the old one, because it
knows nothing of what its slaves have.  What the table says about a longer log than the one that was found is dropped.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass

from gantry.broker.config import BrokerConfig, Role
from gantry.errors import ConfigError
from gantry.replication import papers
from gantry.replication.epochs import EpochTable
from gantry.replication.handshake import SECRET_BYTES_MIN
from gantry.replication.papers import Identity
from gantry.store.disk import Disk

_SECRET_BYTES_MAX = 64 << 10


def read_secret(path: str) -> bytes:
    """The secret in a file, without space around it; ConfigError naming the file."""
    try:
        with open(os.path.expanduser(path), "rb") as file:
            secret = file.read(_SECRET_BYTES_MAX + 1).strip()
    except OSError as error:
        raise ConfigError(f"replication.secret_file {path}: {error.strerror or error}") from error
    if not SECRET_BYTES_MIN <= len(secret) <= _SECRET_BYTES_MAX:
        raise ConfigError(
            f"replication.secret_file {path} has {len(secret)} bytes, expected {SECRET_BYTES_MIN} to "
            f"{_SECRET_BYTES_MAX}; `head -c 32 /dev/urandom | base64` makes one"
        )
    return secret


@dataclass(slots=True)
class Membership:
    """A member; `identity` and `epochs` as they stand on its disk."""

    secret: bytes
    identity: Identity
    epochs: EpochTable


def join(config: BrokerConfig, disk: Disk, root: str, chance: random.Random) -> Membership | None:
    """The member that this folder is, made one if it is none yet; None for a broker without replication."""
    if not config.replication.secret_file:
        return None
    secret = read_secret(config.replication.secret_file)
    identity = papers.load_identity(disk, root)
    if identity is None or (not identity.cluster_uid and config.role is not Role.SLAVE):
        cluster_uid = "" if config.role is Role.SLAVE else _uid(chance)
        identity = Identity(cluster_uid, identity.store_uid if identity else _uid(chance))
        papers.save_identity(disk, root, identity)
    return Membership(secret, identity, papers.load_epochs(disk, root))


def take_epoch(member: Membership, disk: Disk, root: str, start: int, end: int) -> int:
    """Begin a mastership over a log from `start` to `end`; its epoch, which is on the disk by then."""
    table = member.epochs
    if table.entries:
        epoch = table.last_epoch + 1
        member.epochs = table.within(end).forget_before(start).begin(epoch, end)
    else:
        # All of a log that was never replicated counts as one mastership's, so that a copy of its beginning fits it.
        epoch = 1
        member.epochs = table.begin(epoch, start)
    papers.save_epochs(disk, root, member.epochs)
    return epoch


def _uid(chance: random.Random) -> str:
    return f"{chance.getrandbits(128):032x}"
