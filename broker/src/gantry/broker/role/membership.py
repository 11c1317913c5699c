"""A group member's secret, identity, epochs and promises, which are needed before its store is open.

Whether its disk has lost messages is checked in two steps around the opening of the store: `expect` notes how far the
log has to reach, `begin` compares.  Only a seal makes a promise; the next epoch of a static master is above it.

A static master takes the next epoch at each start: a restarted process never continues the old epoch, because it does
not know what its slaves have.  With a register the epoch is the register's (`member_register`).  Entries of the table
of epochs beyond the end of the log are dropped.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from gantry.broker.machine import Machine
from gantry.broker.part_settings import terms_of
from gantry.broker.settings.config import BrokerConfig, Role
from gantry.errors import ConfigError
from gantry.replication import member_files, term_promise
from gantry.replication.epochs import EpochTable
from gantry.replication.handshake import SECRET_BYTES_MIN
from gantry.replication.haproof import Keys
from gantry.replication.member_files import StoreIdentity
from gantry.replication.record import Holder
from gantry.replication.role_decision import OwnState
from gantry.replication.term_promise import Beginning, Ending, TermPromise
from gantry.replication.terms import Terms
from gantry.store import recoverypoint
from gantry.store.disk import Disk

log = logging.getLogger("gantry.broker")

_SECRET_BYTES_MAX = 64 << 10
KEY_LOOK_S = 5.0  # a kubelet needs a minute to update a secret


def read_keys(path: str) -> Keys:
    """Return the secret of a file, and the second valid one of its second line; ConfigError when it is missing or
    invalid.
    """
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
    """Watches the file of the secret: `look` takes a change over (`haproof.Keys.renew`).

    An unreadable or invalid file changes nothing; that is logged once for each state of the file.
    """

    def __init__(self, path: str, keys: Keys) -> None:
        self._path = os.path.expanduser(path)
        self._keys = keys
        self._seen: object = None  # None: the file is read at the first look, because it may have changed meanwhile

    def look(self) -> None:
        """Read the file if its stat differs from the last one. A kubelet exchanges the whole folder."""
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
    """A member of a group; `identity`, `epochs` and `term_promise` are the same as on its disk."""

    keys: Keys
    identity: StoreIdentity
    epochs: EpochTable
    term_promise: TermPromise = field(default_factory=lambda: TermPromise(0))
    fencing: int = 0  # the highest epoch whose promise was begun
    place: int = 0  # its ordinal in a group with a register, else its brokerId
    has_register: bool = False
    process: str = ""  # id of the process
    terms: Terms | None = None  # what its configuration says about the group

    @property
    def promised(self) -> int:
        """The highest epoch that is promised, or about to be; nothing begins below it."""
        return max(self.term_promise.promise, self.fencing)

    @property
    def me(self) -> Holder:
        """This member and process in the form of the register."""
        return Holder(self.term_promise.member(self.place), self.process)

    def known(self, log_end: int) -> OwnState:
        """Return what this member knows about itself, for the decision about its role."""
        identity = self.identity
        last_epoch = self.epochs.last_epoch
        uids = identity.cluster_uid, identity.store_uid
        return OwnState(self.me, *uids, log_end, last_epoch, self.promised, self.terms)


def join(
    config: BrokerConfig, disk: Disk, root: str, chance: random.Random, process: str = "", kept: Keys | None = None
) -> Membership:
    """Return the member of this folder; its identity is created if there is none.

    kept: the keys of the former broker in this process; they are renewed, so that a key that was just replaced stays
    valid.
    """
    keys = read_keys(config.replication.secret_file)
    if kept is not None:
        kept.renew(keys)
        keys = kept
    has_register = bool(config.replication.register)
    is_told = has_register or config.role is Role.SLAVE  # the cluster's id comes from the register or the master
    identity = member_files.load_identity(disk, root)
    if identity is None or (not identity.cluster_uid and not is_told):
        # The id of a cluster is the storeUID of its first folder, also of one that had no slaves before.
        store_uid = identity.store_uid if identity else _uid(chance)
        identity = StoreIdentity("" if is_told else store_uid, store_uid)
        member_files.save_identity(disk, root, identity)
    return Membership(
        keys,
        identity,
        member_files.load_epochs(disk, root),
        term_promise.load(disk, root) or TermPromise(0),
        place=config.replication.ordinal if has_register else config.id,
        has_register=has_register,
        process=process,
        terms=terms_of(config),
    )


def cluster_uid(member: Membership | None, machine: Machine, root: str) -> Callable[[], str]:
    """Return a function that returns the cluster's id; that of a broker without a group is the id of its folder."""
    if member is not None:
        return lambda: member.identity.cluster_uid
    identity = member_files.load_identity(machine.disk, root)
    if identity is None:
        identity = StoreIdentity("", _uid(machine.chance))
        member_files.save_identity(machine.disk, root, identity)
    return lambda: identity.cluster_uid or identity.store_uid


def expect(member: Membership, disk: Disk, root: str) -> None:
    """Note before the store is opened how far its log has to reach."""
    point = recoverypoint.load(disk, root)
    expected = member.term_promise.expect(0 if point is None else point.flushed)
    if expected != member.term_promise:
        _save(member, disk, root, expected)


def begin(member: Membership, disk: Disk, root: str, beginning: Beginning) -> None:
    """Note that the store is open, and count a loss of the former process, durably."""
    _save(member, disk, root, member.term_promise.begin(beginning))


def end(member: Membership, disk: Disk, root: str, ending: Ending) -> None:
    """Note that the store is closed, and how the process ended."""
    _save(member, disk, root, member.term_promise.end(ending))


def take_epoch(member: Membership, disk: Disk, root: str, start: int, end: int) -> int:
    """Begin the next epoch of a static master over a log from `start` to `end`. Return the epoch, which is on
    the disk.
    """
    epoch = max(member.epochs.last_epoch, member.promised) + 1
    _begin_epoch(member, disk, root, epoch, (start, end))
    return epoch


def lead(member: Membership, disk: Disk, root: str, cluster_uid: str, epoch: int, ends: tuple[int, int]) -> None:
    """Begin the epoch that the register gave this member over a log with these ends; everything is on the disk at
    return.
    """
    _save(member, disk, root, member.term_promise.promising(epoch))
    if member.identity.cluster_uid != cluster_uid:
        identity = replace(member.identity, cluster_uid=cluster_uid)
        member_files.save_identity(disk, root, identity)
        member.identity = identity
    _begin_epoch(member, disk, root, epoch, ends)


def _begin_epoch(member: Membership, disk: Disk, root: str, epoch: int, ends: tuple[int, int]) -> None:
    start, end = ends
    table = member.epochs.within(end).forget_before(start)
    # A log that was never replicated counts as one epoch, so that a copy of its beginning matches it.
    begun = table.begin(epoch, end if table.entries else start)
    member_files.save_epochs(disk, root, begun)
    member.epochs = begun


def take_number(member: Membership, disk: Disk, root: str, number: int) -> None:
    """Store the number that the register gave this disk."""
    _save(member, disk, root, replace(member.term_promise, disk=number))


def _save(member: Membership, disk: Disk, root: str, intended: TermPromise) -> None:
    """Write promise and incarnation; the member has them when they are on the disk."""
    term_promise.save(disk, root, intended)
    member.term_promise = intended


def _uid(chance: random.Random) -> str:
    return f"{chance.getrandbits(128):032x}"
