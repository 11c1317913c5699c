"""Which part a member of a group with a register takes in one life of its broker.

A life is from `Broker.start` to `stop`; a member that has to change its part ends it and begins another one in the same
process.  So everything that a part needs is wired once, by `assemble`, as if the configuration had said so: a member
that follows has the role SLAVE and the brokerId ordinal + 1, the one that leads the group's role and the brokerId 0.

The register is asked when the store is open and nothing is built around it yet.  When it does not answer in time the
member follows nobody, and `register_watcher` goes on asking: a master that was started again waits for the register.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from gantry.broker.role import membership
from gantry.broker.settings.config import BrokerConfig, Role
from gantry.errors import OutcomeUnknownError
from gantry.replication.record import Record
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
class Part:
    """What this life is: its configuration, and of who leads the register as it was when that began."""

    config: BrokerConfig
    seen: Seen | None = None

    @property
    def leads(self) -> bool:
        """Whether this member leads."""
        return self.seen is not None


async def choose(config: BrokerConfig, reader: RegisterReader, store: Store, disk: Disk) -> Part:
    """Ask the register, claim the next epoch if that is this member's to do, and keep what it says on the disk."""
    member, root, why = reader.member, store.settings.root, ""

    def keep_number(record: Record) -> None:
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
            return Part(config, seen)
        return following(config, member)
    log.warning("the register of group %s: %s; this member follows nobody until it answers", config.name, why)
    return following(config, member)


def following(config: BrokerConfig, member: Membership) -> Part:
    """The part of somebody who does not lead."""
    return Part(replace(config, role=Role.SLAVE, id=member.place + 1))
