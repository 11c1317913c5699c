"""Requests about consumer groups: UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200), GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201),
DELETE_SUBSCRIPTIONGROUP (207), GET_SUBSCRIPTIONGROUP_CONFIG (352).  RocketMQ: `AdminBrokerProcessor`.

Deleting a group keeps its offsets unless the request says otherwise.  The next heartbeat of a member creates the group
again, and it goes on where it stood.  Its retry and dead-letter topics are topics of their own, which
RocketMQ's tools delete by requests of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry.errors import Refusal
from gantry.leaves.frames import Command
from gantry.metadata import longanswers
from gantry.metadata.groups import Groups
from gantry.metadata.offsets import Offsets
from gantry.model import names
from gantry.model.subscription import GroupConfig
from gantry.wire import bodies, headers
from gantry.wire.codes import ResponseCode
from gantry.wire.command import refusal, reply

if TYPE_CHECKING:
    from gantry.transport.connection import Connection

_RETRY_QUEUES_MAX = 1024


class GroupHandlers:
    """Handlers of administrators' requests about groups.  The router delays the reply until a change is saved."""

    def __init__(self, groups: Groups, offsets: Offsets) -> None:
        self._groups = groups
        self._offsets = offsets

    def update(self, connection: Connection, command: Command) -> Command:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: make a group or alter it."""
        try:
            config = GroupConfig.from_json(bodies.asked(command.body))
        except ValueError as error:
            raise bodies.MalformedBodyError(f"group configuration: {error}") from error
        why = _config_refusal(config) or self._groups.put(config)
        self._groups.file.save_if_changed()
        return reply(command) if why is None else refusal(command, why)

    async def all(self, connection: Connection, command: Command) -> Command:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG: the whole table, in one piece as for topics."""
        head, all_groups = self._groups.head(), list(self._groups.all())
        every = ((config.name, config.to_json()) for config in all_groups)
        body = await longanswers.table(head, "subscriptionGroupTable", every, "ask group by group (352)")
        return reply(command, ext=headers.to_ext(totalGroupNum=len(all_groups)), body=body)

    def get(self, connection: Connection, command: Command) -> Command:
        """GET_SUBSCRIPTIONGROUP_CONFIG: the configuration of one group, or SUBSCRIPTION_GROUP_NOT_EXIST."""
        name = headers.parse(command.code, command.ext).text("group")
        config = self._groups.get(name)
        if config is None:
            return reply(command, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker. group: {name}")
        return reply(command, body=bodies.dumps(config.to_json()))

    async def delete(self, connection: Connection, command: Command) -> Command:
        """DELETE_SUBSCRIPTIONGROUP: the group and, if asked for, its offsets."""
        header = headers.parse(command.code, command.ext)
        self._groups.delete(header.text("groupName"))
        if header.boolean("cleanOffset"):
            self._offsets.remove_group(header.text("groupName"))
        # First where in the log it was deleted: a start without that would make the group again, with its old leases.
        await self._offsets.saved()
        self._groups.file.save_if_changed()
        return reply(command)


def _config_refusal(config: GroupConfig) -> Refusal | None:
    fault = names.group_fault(config.name)
    if fault is not None:
        return Refusal(ResponseCode.INVALID_PARAMETER, fault)
    if not 0 <= config.retry_queues <= _RETRY_QUEUES_MAX:
        remark = f"retryQueueNums is {config.retry_queues}, from 0 to {_RETRY_QUEUES_MAX} are allowed"
        return Refusal(ResponseCode.INVALID_PARAMETER, remark)
    return None
