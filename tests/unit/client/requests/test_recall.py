"""What a recall handle says."""

from __future__ import annotations

import base64

import pytest

from gantry.client.requests.recall import queue_of, recall
from gantry.errors import RefusedError
from gantry.leaves.frames import Command
from gantry.wire.codes import RequestCode
from gantry.wire.command import reply

HANDLE = base64.urlsafe_b64encode(b"v1 Orders broker-a 1700000000000 0A0B").decode()


def test_a_handle_says_which_broker_has_the_message() -> None:
    queue = queue_of(HANDLE)
    assert (queue.topic, queue.broker_name) == ("Orders", "broker-a")


@pytest.mark.parametrize("handle", ["", "!", "v1", base64.urlsafe_b64encode(b"v2 a b 1 c").decode(), "\u00e9"])
def test_what_is_no_handle_is_refused_before_anybody_is_asked(handle: str) -> None:
    with pytest.raises(ValueError, match="recall handle"):
        queue_of(handle)


def test_the_question_carries_it_as_it_is() -> None:
    question = recall("g", HANDLE, queue_of(HANDLE))
    assert (question.command.code, question.command.ext["recallHandle"]) == (RequestCode.RECALL_MESSAGE, HANDLE)
    assert question.read(reply(Command(370), ext={"msgId": "0A0B"})) == "0A0B"
    with pytest.raises(RefusedError, match="too late"):
        question.read(reply(Command(370), 604, "too late"))
