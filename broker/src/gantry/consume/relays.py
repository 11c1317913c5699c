"""Questions that only a client can answer, handed on to it: GET_CONSUMER_RUNNING_INFO (307).  RocketMQ:
`AdminBrokerProcessor.callConsumer`.

The client is found by its id among the group's members, and asked over the connection of its heartbeats.  Its answer
goes back as it is, whatever it says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry.errors import OutcomeUnknownError, UnreachableError
from gantry.leaves.frames import Command
from gantry.metadata.clients import Clients
from gantry.wire import headers
from gantry.wire.codes import ResponseCode
from gantry.wire.command import reply, request

if TYPE_CHECKING:
    from gantry.transport.connection import Connection

ANSWER_S = 10.0  # RocketMQ's
VERSION_OF_RUNNING_INFO = 62  # RocketMQ: V3_1_8_SNAPSHOT


class RelayHandlers:
    """Between tools and clients."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    async def running_info(self, connection: Connection, command: Command) -> Command:
        """GET_CONSUMER_RUNNING_INFO: what a member of a group says about itself."""
        header = headers.parse(command.code, command.ext)
        group, client_id = header.text("consumerGroup"), header.text("clientId")
        found = self._clients.consumer(group, client_id)
        if found is None:
            return reply(command, ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id[:80]}> not online")
        asked, member = found
        if member.version < VERSION_OF_RUNNING_INFO:
            remark = f"The Consumer <{group}> <{client_id[:80]}> Version {member.version} too low to finish"
            return reply(command, ResponseCode.SYSTEM_ERROR, remark)
        try:
            answer = await asked.invoke(request(command.code, dict(command.ext), command.body), ANSWER_S)
        except OutcomeUnknownError as error:
            remark = f"The consumer <{group}> <{client_id[:80]}> did not answer: {error}"
            return reply(command, ResponseCode.CONSUME_MSG_TIMEOUT, remark)
        except UnreachableError as error:
            return reply(command, ResponseCode.SYSTEM_ERROR, f"The consumer <{group}> cannot be asked: {error}")
        return reply(command, answer.code, answer.remark, dict(answer.ext), answer.body)
