"""Requests for locks on queues, of orderly consumers (facts: protocol, LOCK_BATCH_MQ and UNLOCK_BATCH_MQ)."""

from __future__ import annotations

from collections.abc import Iterable

from gantry.client.requests.question import Question, nothing, require, value
from gantry.leaves.frames import Command
from gantry.model import documents
from gantry.model.route import MessageQueue
from gantry.wire.bodies import dumps
from gantry.wire.codes import RequestCode
from gantry.wire.command import request


def lock(group: str, client_id: str, queues: Iterable[MessageQueue]) -> Question[frozenset[MessageQueue]]:
    """Request or renew the locks of queues on one broker; the answer is the queues whose lock this client has."""

    def read(reply: Command) -> frozenset[MessageQueue]:
        return value(require(reply), _granted)

    return Question(request(RequestCode.LOCK_BATCH_MQ, {}, _body(group, client_id, queues)), read)


def unlock(group: str, client_id: str, queues: Iterable[MessageQueue]) -> Question[None]:
    """Give the locks of these queues back."""
    return Question(request(RequestCode.UNLOCK_BATCH_MQ, {}, _body(group, client_id, queues)), nothing)


def _body(group: str, client_id: str, queues: Iterable[MessageQueue]) -> bytes:
    return dumps(
        {
            "clientId": client_id,
            "consumerGroup": group,
            "mqSet": [queue.to_json() for queue in queues],
            "onlyThisBroker": False,
        }
    )


def _granted(body: object) -> frozenset[MessageQueue]:
    source = documents.document(body, "the granted locks")
    return frozenset(map(MessageQueue.from_json, documents.array(source, "lockOKMQSet")))
