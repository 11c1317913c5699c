"""Carries out a planned change of the log before the store is opened, and counts the lost messages.

A failure of the count, from a full disk or a damaged file, is only logged: the log is cut even so, because the member
has to join its group.
"""

from __future__ import annotations

import asyncio
import logging

from gantry.broker.machine import Machine
from gantry.broker.settings.config import Role
from gantry.errors import StoreError
from gantry.replication import losses, member_files
from gantry.replication.handshake import Step
from gantry.replication.losses import Losses
from gantry.store.disk import Disk

log = logging.getLogger("gantry.broker")


async def carry_out(role: Role, machine: Machine, root: str, segment_bytes: int) -> Losses:
    """Carry out the pending plan, if there is one. Return what this folder has lost so far.

    role: the group's policy; in a static pair a slave does not know it, and it counts as ASYNC_MASTER.
    """
    disk = machine.disk
    plan = member_files.load_plan(disk, root)
    lost: Losses | None = None
    found = (0, 0)
    if plan is not None and plan.step is Step.CUT:
        try:
            for so_far in losses.behind(disk, root, plan.at, segment_bytes, machine.clock):
                found = so_far
                await asyncio.sleep(0)
            if found[0] and role is not Role.SYNC_MASTER:
                lost = losses.count(disk, root, plan.at, found)
        except (StoreError, ValueError) as error:
            log.warning("what the log has behind %d, where it is cut, was not counted: %s", plan.at, error)
    plan = member_files.carry_out(disk, root, segment_bytes, machine.clock)
    if plan is not None:
        _tell(plan, role, found, lost)
    return known(disk, root)


def known(disk: Disk, root: str) -> Losses:
    """Return what this folder has lost so far, and note that no cut is under way."""
    try:
        return losses.settle(disk, root)
    except (StoreError, ValueError) as error:
        log.warning("the count of lost messages cannot be read or kept: %s", error)
        return Losses()


def _tell(plan: member_files.Plan, role: Role, found: tuple[int, int], lost: Losses | None) -> None:
    if plan.step is not Step.CUT:
        log.warning("the log begins at %d: the master no longer has what this member would need to catch up", plan.at)
    elif lost is None:
        log.log(
            logging.WARNING if found[0] else logging.INFO,
            "the log was cut at %d: %d messages (%d bytes) are gone that SYNC_MASTER does not acknowledge; look for "
            "them where a member was forced to lead, or the group was ASYNC_MASTER before",
            plan.at,
            *found,
        )
    else:
        log.warning(
            "the log was cut at %d: %d messages (%d bytes) are lost that %s; %d in all on this disk",
            plan.at,
            lost.last_messages,
            lost.last_bytes,
            "ASYNC_MASTER had acknowledged" if role is Role.ASYNC_MASTER else "may have been acknowledged",
            lost.messages,
        )
