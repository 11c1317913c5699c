"""Chooses the role of a member at the start of its broker, in a group with a register.

The role stays the same from `Broker.start` to `stop`.  A member that has to change its role stops its broker and starts
another one in the same process.  So `assemble` connects all parts once, as if the configuration had named the role: a
slave has the role SLAVE and the brokerId ordinal + 1, the master the group's role and the brokerId 0.

The register is read when the store is open and before the other parts are built.  When it does not answer in time the
member has no master, and `register_watcher` continues to read it: a restarted master waits for the register.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from gantry.broker.role import membership
from gantry.broker.settings.config import BrokerConfig, Role
from gantry.errors import OutcomeUnknownError
from gantry.replication.record import RegisterRecord
from gantry.replication.register import RegisterConflictError, RegisterError, Seen
from gantry.replication.role_decision import Lead

if TYPE_CHECKING:
    from gantry.broker.role.membership import Membership
    from gantry.broker.role.register_reader import RegisterReader
    from gantry.store.disk import Disk
    from gantry.store.store import Store

log = logging.getLogger("gantry.replication")

_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class StartupRole:
    """The role of this start: its configuration, and for a master the register as it was read."""

    config: BrokerConfig
    seen: Seen | None = None

    @property
    def leads(self) -> bool:
        """Whether this member is the master."""
        return self.seen is not None


async def choose(config: BrokerConfig, reader: RegisterReader, store: Store, disk: Disk) -> StartupRole:
    """Read the register, claim the next epoch if this member has to, and store the result on the disk."""
    member, root, why = reader.member, store.settings.root, ""

    def keep_number(record: RegisterRecord) -> None:
        number = reader.new_number(record)
        if number is not None:
            membership.take_number(member, disk, root, number)

    for _ in range(_ATTEMPTS):
        try:
            wanted, seen = await reader.consult(keep_number)
        except (RegisterConflictError, OutcomeUnknownError) as error:
            why = str(error)
            continue
        except RegisterError as error:
            why = str(error)
            break
        if isinstance(wanted, Lead):
            assert seen is not None
            ends = store.reader.log_start, store.written.offset
            cluster_uid = seen.record.cluster_uid
            store.in_reserve(partial(membership.lead, member, disk, root, cluster_uid, wanted.epoch, ends))
            log.warning("%s leads group %s in epoch %d", member.me, config.name, wanted.epoch)
            return StartupRole(config, seen)
        return following(config, member)
    log.warning("the register of group %s: %s; this member has no master until it answers", config.name, why)
    return following(config, member)


def following(config: BrokerConfig, member: Membership) -> StartupRole:
    """Return the role of a member that is not the master."""
    return StartupRole(replace(config, role=Role.SLAVE, id=member.place + 1))
