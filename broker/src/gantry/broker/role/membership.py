"""What a broker needs to be a member of a group before its store is open: the secret, who it is, epochs and promises.

What its disk may have lost is found out in two steps, around the opening of the store: `expect` notes how far the log
has to reach, `begin` looks.  A promise comes from a seal only; the next mastership that the configuration begins takes
an epoch above it.

A static master takes the next epoch at each start: a process that restarted never goes on in the old one, because it
knows nothing of what its slaves have.  With a register the epoch is the register's (`startup_role`).  What the table
says about a longer log than the one that was found is dropped.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from gantry.broker.machine import Machine
from gantry.broker.settings.config import BrokerConfig, Role
from gantry.errors import ConfigError
from gantry.replication import member_files, term_promise
from gantry.replication.epochs import EpochTable
from gantry.replication.handshake import SECRET_BYTES_MIN
from gantry.replication.haproof import Keys
from gantry.replication.member_files import Identity
from gantry.replication.record import Holder
from gantry.replication.role_decision import Known
from gantry.replication.term_promise import Beginning, Ending, TermPromise
from gantry.store import recoverypoint
from gantry.store.disk import Disk

log = logging.getLogger("gantry.broker")

_SECRET_BYTES_MAX = 64 << 10
KEY_LOOK_S = 5.0  # a kubelet needs a minute to bring a new secret


def read_keys(path: str) -> Keys:
    """The secret in a file, and in a second line the other one that is good while it is changed; ConfigError."""
    try:
        with open(os.path.expanduser(path), "rb") as file:
            lines = [line.strip() for line in file.read(_SECRET_BYTES_MAX + 1).split(b"\n") if line.strip()]
    except OSError as error:
        raise ConfigError(f"replication.secret_file {path}: {error.strerror or error}") from error
    if not 1 <= len(lines) <= 2:
        raise ConfigError(f"replication.secret_file {path} has {len(lines)} lines, expected a secret, or two of them")
    for secret in lines:
        if not SECRET_BYTES_MIN <= len(secret) <= _SECRET_BYTES_MAX:
            raise ConfigError(
                f"replication.secret_file {path} has {len(secret)} bytes, expected {SECRET_BYTES_MIN} to "
                f"{_SECRET_BYTES_MAX}; `head -c 32 /dev/urandom | base64` makes one"
            )
    return Keys(*lines)


class KeyFile:
    """The file of the secret while the broker runs: `look` takes a change over (`haproof.Keys.renew`).

    A file that cannot be read, or not be used, changes nothing; that is logged once for each state of the file.
    """

    def __init__(self, path: str, keys: Keys) -> None:
        self._path = os.path.expanduser(path)
        self._keys = keys
        self._seen: object = None  # first of all the file is read: it may have changed since `keys` were

    def look(self) -> None:
        """One stat, and the file where that differs from the last one.  A kubelet exchanges the whole folder."""
        try:
            about = os.stat(self._path)
            now: object = about.st_dev, about.st_ino, about.st_mtime_ns, about.st_size
        except OSError as error:
            now = error.strerror
        if now == self._seen:
            return
        self._seen = now
        try:
            if self._keys.renew(read_keys(self._path)):
                log.warning("replication.secret_file %s has changed: the new secret is used from now on", self._path)
        except ConfigError as error:
            log.warning("%s; the former secret stays in use", error)


@dataclass(slots=True)
class Membership:
    """A member; `identity`, `epochs` and `term_promise` as they stand on its disk."""

    keys: Keys
    identity: Identity
    epochs: EpochTable
    term_promise: TermPromise = field(default_factory=lambda: TermPromise(0))
    fencing: int = 0  # the epoch that is being promised, or was last
    place: int = 0  # its ordinal where there is a register, else its brokerId
    has_register: bool = False
    process: str = ""  # another one in each process

    @property
    def promised(self) -> int:
        """Below this epoch nothing begins any more."""
        return max(self.term_promise.promise, self.fencing)

    @property
    def me(self) -> Holder:
        """As the register names us."""
        return Holder(self.term_promise.member(self.place), self.process)

    def known(self, log_end: int) -> Known:
        """What we know of ourselves."""
        identity = self.identity
        last_epoch = self.epochs.last_epoch
        return Known(self.me, identity.cluster_uid, identity.store_uid, log_end, last_epoch, self.promised)


def join(
    config: BrokerConfig, disk: Disk, root: str, chance: random.Random, process: str = "", kept: Keys | None = None
) -> Membership:
    """The member that this folder is, made one if it is none yet.

    kept: the keys of this process's life before; they are renewed, so that a key that was just exchanged stays good.
    """
    keys = read_keys(config.replication.secret_file)
    if kept is not None:
        kept.renew(keys)
        keys = kept
    has_register = bool(config.replication.register)
    is_told = has_register or config.role is Role.SLAVE  # by the register, or by the master
    identity = member_files.load_identity(disk, root)
    if identity is None or (not identity.cluster_uid and not is_told):
        # A cluster has the name of the folder that it began with: one that served alone stays who it was.
        store_uid = identity.store_uid if identity else _uid(chance)
        identity = Identity("" if is_told else store_uid, store_uid)
        member_files.save_identity(disk, root, identity)
    return Membership(
        keys,
        identity,
        member_files.load_epochs(disk, root),
        term_promise.load(disk, root) or TermPromise(0),
        place=config.replication.ordinal if has_register else config.id,
        has_register=has_register,
        process=process,
    )


def cluster_uid(member: Membership | None, machine: Machine, root: str) -> Callable[[], str]:
    """Says which cluster this is; a broker in no group is one by itself, under the name of its folder."""
    if member is not None:
        return lambda: member.identity.cluster_uid
    identity = member_files.load_identity(machine.disk, root)
    if identity is None:
        identity = Identity("", _uid(machine.chance))
        member_files.save_identity(machine.disk, root, identity)
    return lambda: identity.cluster_uid or identity.store_uid


def expect(member: Membership, disk: Disk, root: str) -> None:
    """Before the store is opened: note how far its log has to reach."""
    point = recoverypoint.load(disk, root)
    expected = member.term_promise.expect(0 if point is None else point.flushed)
    if expected != member.term_promise:
        term_promise.save(disk, root, expected)
        member.term_promise = expected


def begin(member: Membership, disk: Disk, root: str, beginning: Beginning) -> None:
    """The store is open: find out whether this is still the same incarnation, durably."""
    begun = member.term_promise.begin(beginning)
    term_promise.save(disk, root, begun)
    member.term_promise = begun


def end(member: Membership, disk: Disk, root: str, ending: Ending) -> None:
    """The store is closed, and nobody else writes to the disk any more."""
    ended = member.term_promise.end(ending)
    term_promise.save(disk, root, ended)
    member.term_promise = ended


def take_epoch(member: Membership, disk: Disk, root: str, start: int, end: int) -> int:
    """Begin a mastership over a log from `start` to `end`; its epoch, which is on the disk by then."""
    table = member.epochs
    epoch = max(table.last_epoch, member.promised) + 1
    if table.entries:
        begun = table.within(end).forget_before(start).begin(epoch, end)
    else:
        # All of a log that was never replicated counts as one mastership's, so that a copy of its beginning fits it.
        begun = table.begin(epoch, start)
    member_files.save_epochs(disk, root, begun)
    member.epochs = begun
    return epoch


def lead(member: Membership, disk: Disk, root: str, cluster_uid: str, epoch: int, ends: tuple[int, int]) -> None:
    """Begin the mastership that the register gave us over a log with these ends; all of it is on the disk by then."""
    promised_now = member.term_promise.promising(epoch)
    term_promise.save(disk, root, promised_now)
    member.term_promise = promised_now
    if member.identity.cluster_uid != cluster_uid:
        identity = replace(member.identity, cluster_uid=cluster_uid)
        member_files.save_identity(disk, root, identity)
        member.identity = identity
    start, end = ends
    table = member.epochs.within(end).forget_before(start)
    begun = table.begin(epoch, end if table.entries else start)
    member_files.save_epochs(disk, root, begun)
    member.epochs = begun


def take_number(member: Membership, disk: Disk, root: str, number: int) -> None:
    """The register numbered our disk."""
    numbered = replace(member.term_promise, disk=number)
    term_promise.save(disk, root, numbered)
    member.term_promise = numbered


def _uid(chance: random.Random) -> str:
    return f"{chance.getrandbits(128):032x}"
