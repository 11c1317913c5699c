"""What a sink's sender does about a row that is stored and in doubt: its part fails, or the row is sent again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gantry.leaves.frames import Command
from gantry.model.route import BrokerData, QueueData, TopicRoute
from gantry.wire.codes import ResponseCode
from pyspark_gantrymq import sinkoptions, sinksending
from pyspark_gantrymq.sinkcolumns import Row

PLACE = {"msgId": "0A" * 16, "queueId": "0", "queueOffset": "7"}
SEALED = Command(code=ResponseCode.SYSTEM_BUSY, remark="another master may lead by now", ext=dict(PLACE))
BUSY = Command(code=ResponseCode.SYSTEM_BUSY, remark="busy")
STORED = Command(code=ResponseCode.SUCCESS, ext=dict(PLACE))
ROUTE = TopicRoute((QueueData("broker-a", 8, 8, 6),), (BrokerData("c", "broker-a", {0: "127.0.0.1:1"}),))


class Saying:
    """A pipe that answers at once, each request with the next of these."""

    def __init__(self, answers: list[Command], answered: Callable[..., None]) -> None:
        self.requests = 0
        self._answers = answers
        self._answered = answered

    def __len__(self) -> int:
        return 0

    def put(self, command: Command, token: object) -> None:
        self.requests += 1
        self._answered(token, self._answers.pop(0))

    def drain(self) -> None:
        """Nothing is under way."""

    def close(self) -> None:
        """Nothing is open."""


def sender(extra: bytes, *answers: Command) -> tuple[sinksending.SinkSender, Saying]:
    made = sinksending.SinkSender(sinkoptions.read({"gantrymq.namesrv": "127.0.0.1:9876", "topic": "t"}), "", "", extra)
    made._session.route = lambda *_, **__: ROUTE  # type: ignore[method-assign]
    pipe = Saying(list(answers), made._answered)
    made._pipes["127.0.0.1:1"] = pipe  # type: ignore[assignment]
    return made, pipe


def send(made: sinksending.SinkSender) -> None:
    made.send(Row("t", b"x", b"", "id-1"))
    made.finish()


def test_a_half_that_another_master_may_have_fails_its_part_and_is_not_sent_under_it_again() -> None:
    made, pipe = sender(b"TRAN_MSG\x01true\x02", SEALED)
    with pytest.raises(sinksending.SinkError, match=r"another master may lead by now.*the part is given up"):
        send(made)
    assert pipe.requests == 1


def test_a_half_that_was_refused_is_sent_again_under_the_same_part() -> None:
    made, pipe = sender(b"TRAN_MSG\x01true\x02", BUSY, STORED)
    send(made)
    assert (pipe.requests, made.sent) == (2, 1)


@pytest.mark.parametrize("doubt", [SEALED, BUSY])
def test_at_least_once_a_row_is_sent_again_whatever_the_doubt(doubt: Command) -> None:
    made, pipe = sender(b"", doubt, STORED)
    send(made)
    assert (pipe.requests, made.sent) == (2, 1)
